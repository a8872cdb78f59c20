//! How telling alerts goes, as `status` shows it.

use serde_json::Value;

use crate::output::field;

/// How telling alerts goes; shown to whoever may operate everywhere, else null.
pub(super) struct Alerts(pub(super) Value);

impl Alerts {
    /// What the hub says of them.
    pub(super) fn of(standing: &Value) -> Self {
        Self(standing.get("alerts").cloned().unwrap_or(Value::Null))
    }

    /// Nothing where none go anywhere.
    pub(super) fn line(&self) -> Vec<String> {
        if self.0.get("configured") != Some(&Value::Bool(true)) {
            return Vec::new();
        }
        let at = field(&self.0, "/last_told_at");
        let last = if at == "-" { "none told since the start".to_owned() } else { format!("last told at {at}") };
        vec![format!("to {}, {last}, {} waiting", field(&self.0, "/to"), field(&self.0, "/waiting"))]
    }

    /// What needs a look.
    pub(super) fn in_vain(&self) -> Option<(String, String)> {
        let why = self.0.get("last_error").and_then(Value::as_str)?;
        let what = format!("alerts can't be told: {why}, since {}", field(&self.0, "/failing_since"));
        Some((what, "reach config --effective".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn alerts_that_go_nowhere_are_no_line_and_those_in_vain_need_a_look() {
        let of = |alerts: Value| Alerts::of(&json!({"alerts": alerts}));
        for nowhere in [Alerts::of(&json!({})), of(json!({"configured": false}))] {
            assert_eq!((nowhere.line(), nowhere.in_vain()), (Vec::new(), None));
        }
        let some = of(json!({"configured": true, "to": "pager:443", "waiting": 2, "last_told_at": null,
            "failing_since": "2026-01-01T00:00:00Z", "last_error": "http-500"}));
        assert_eq!(some.line(), ["to pager:443, none told since the start, 2 waiting"]);
        let (what, with) = some.in_vain().expect("a look");
        assert_eq!(what, "alerts can't be told: http-500, since 2026-01-01T00:00:00Z");
        assert_eq!(with, "reach config --effective");
    }
}
