//! A namespace where nothing ever was: a misspelt `--namespace` must not look like one where all is well.

use serde_json::Value;

use crate::client::Client;
use crate::output::field;

/// What needs a look: the namespace that was probably meant, if the token may see one of a like name.
pub(super) fn look_at(standing: &Value) -> Vec<(String, String)> {
    let meant = standing.pointer("/suggestions/0").and_then(Value::as_str);
    let what = told(standing).zip(meant);
    what.map(|(what, meant)| (what, format!("reach status --namespace {meant}"))).into_iter().collect()
}

/// The same beside a list that is empty; nothing where the namespace is in use, or where the token may not see that.
pub(super) async fn of_empty_list(client: &Client) -> Option<String> {
    told(&client.get(&["v1", "status"], &[]).await.ok()?)
}

/// That nothing was ever there, and what may have been meant; nothing where something was.
pub(super) fn told(standing: &Value) -> Option<String> {
    if standing.get("used") != Some(&Value::Bool(false)) {
        return None;
    }
    let near = field(standing, "/suggestions");
    let meant = if near == "-" {
        "check the name, or begin with an agent or a task".to_owned()
    } else {
        format!("did you mean {}?", near.replace(", ", " or "))
    };
    Some(format!("nothing was ever in the namespace {}: {meant}", field(standing, "/namespace")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_namespace_that_was_never_used_is_told_with_the_name_that_was_meant() {
        let mut standing = json!({"namespace": "acme-prd", "used": false, "suggestions": ["acme-prod", "acme"]});
        let (what, with) = look_at(&standing).remove(0);
        assert_eq!(what, "nothing was ever in the namespace acme-prd: did you mean acme-prod or acme?");
        assert_eq!(with, "reach status --namespace acme-prod");
        standing["suggestions"] = Value::Null;
        let alone = "nothing was ever in the namespace acme-prd: check the name, or begin with an agent or a task";
        assert_eq!((look_at(&standing), told(&standing).as_deref()), (Vec::new(), Some(alone)));
        standing["used"] = json!(true);
        assert_eq!((look_at(&standing), told(&standing)), (Vec::new(), None));
        assert_eq!(told(&json!({})), None, "a hub that does not say it");
    }
}
