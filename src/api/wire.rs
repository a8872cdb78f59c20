//! Shapes that several resources share: receipts, pages and their cursors.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::ledger::handle::Receipt;
use crate::ledger::ids::Digest;
use crate::ledger::machine::task::spec::Text;

use super::error::{ApiError, ApiResult};
use super::extract::{outside, wrong};

/// Items on a page unless the caller says otherwise.
pub const DEFAULT_PAGE: usize = 50;
/// The most items on a page.
pub const MAX_PAGE: usize = 500;

/// A page ends early once its rows weigh so much, with a cursor for the next one. It goes beyond by one row at most.
pub const PAGE_BYTES: usize = 8 << 20;

/// What a row weighs beside its texts.
pub const ROW_BYTES: usize = 1 << 10;

/// Characters of an operator's reason at most.
pub const MAX_REASON: usize = 1_000;

/// Proof that an event is in the ledger (semantics 25).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Receipt)]
pub struct ReceiptBody {
    /// Its place in the ledger.
    pub seq: u64,
    /// RFC 6962 leaf hash of its frame, 64 hex digits.
    pub hash: String,
}

impl From<Receipt> for ReceiptBody {
    fn from(receipt: Receipt) -> Self {
        Self { seq: receipt.seq.0, hash: receipt.hash.to_string() }
    }
}

/// One page of a list.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// For the next page; null on the last one.
    pub next_cursor: Option<String>,
}

/// An operator's reason: short, for it is kept in the ledger.
///
/// # Errors
/// 422 `invalid-field` at `pointer` when it is empty, longer than [`MAX_REASON`] characters or holds control characters.
pub fn reason(pointer: &str, text: Option<&str>) -> ApiResult<Option<Text>> {
    match text.map(str::trim) {
        None => Ok(None),
        Some(text) if text.is_empty() || text.chars().count() > MAX_REASON || text.chars().any(char::is_control) => {
            Err(ApiError::field(pointer, "1 to 1,000 characters without control characters"))
        }
        Some(text) => Ok(Some(text.into())),
    }
}

/// The reason of an operator who has to give one, in the field `reason`.
///
/// # Errors
/// As [`reason`].
pub fn why(text: Option<&str>) -> ApiResult<Text> {
    reason("/reason", text)?.ok_or_else(|| ApiError::field("/reason", "is missing: say why, it stands in the ledger"))
}

/// How many items a page has: `limit` if it is within 1 to [`MAX_PAGE`].
///
/// # Errors
/// 400 `invalid-query` otherwise.
pub fn page_size(limit: Option<usize>) -> ApiResult<usize> {
    match limit {
        None => Ok(DEFAULT_PAGE),
        Some(limit) if (1..=MAX_PAGE).contains(&limit) => Ok(limit),
        Some(limit) => Err(outside("limit", limit, 1..=MAX_PAGE)),
    }
}

/// An opaque cursor: a position in one list under one filter. It goes on after the last item seen, so a page neither
/// skips nor repeats while writes go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    list: &'static str,
    filter: String,
}

impl Cursor {
    /// Cursors of `list` under `filter`, which is any text that stands for all that narrows the list, its namespace too.
    #[must_use]
    pub fn over(list: &'static str, filter: &str) -> Self {
        let digest = Digest::of(&[list.as_bytes(), &[0], filter.as_bytes()]).to_string();
        Self { list, filter: digest.chars().take(16).collect() }
    }

    /// The cursor after `position`.
    #[must_use]
    pub fn after(&self, position: &str) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}.{}", self.filter, position))
    }

    /// The position inside a cursor that this list gave under this filter.
    ///
    /// # Errors
    /// 400 `invalid-query` for any other text.
    pub fn position(&self, cursor: Option<&str>) -> ApiResult<Option<String>> {
        let Some(cursor) = cursor else { return Ok(None) };
        let text = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        match text.as_deref().and_then(|text| text.split_once('.')) {
            Some((filter, position)) if filter == self.filter => Ok(Some(position.to_owned())),
            Some(_) | None => Err(wrong(
                "cursor",
                Some(cursor),
                format!("one that the list of {} gave under these filters", self.list),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_taken_only_by_its_own_list_and_filter() {
        let cursor = Cursor::over("agents", "dev|health=lost");
        let text = cursor.after("weather-1.a");
        assert_eq!(cursor.position(Some(&text)).unwrap().as_deref(), Some("weather-1.a"));
        assert!(Cursor::over("agents", "dev|").position(Some(&text)).is_err());
        assert!(Cursor::over("tasks", "dev|health=lost").position(Some(&text)).is_err());
        assert!(cursor.position(Some("garbage")).is_err());
    }
}
