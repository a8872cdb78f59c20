//! Names of a filter that nothing bears: what a hub says of them, by the option that gave them.

use serde_json::Value;

use crate::output::{field, tame};

/// What gives a field on the command line.
const OPTIONS: [(&str, &str); 7] = [
    ("capability", "--capability"),
    ("agent_id", "--agent"),
    ("session_id", "--session"),
    ("batch_id", "--batch"),
    ("label", "--label"),
    ("failure_code", "--failure-code"),
    ("reach_ids", "--task"),
];

/// A line for each.
pub(super) fn lines(hints: &[Value]) -> Vec<String> {
    hints.iter().map(line).collect()
}

fn line(hint: &Value) -> String {
    let pointer = field(hint, "/pointer");
    let mut steps = pointer.split('/').skip(2);
    let parameter = hint.get("parameter").and_then(Value::as_str);
    let name = parameter.or_else(|| steps.next()).unwrap_or_default();
    let option = OPTIONS.iter().find(|(known, _)| *known == name).map_or(name, |(_, option)| *option);
    let member = steps.next().map_or_else(String::new, |member| format!(" {member}"));
    let names = hint.get("suggestions").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    let meant = if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(", ")) };
    let hidden = match hint.get("not_permitted").and_then(Value::as_u64) {
        Some(hidden @ 1..) => format!(" ({hidden} more that this token may not see)"),
        Some(0) | None => String::new(),
    };
    tame(&format!("{option}{member}: {}{meant}{hidden}", field(hint, "/detail")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_that_nothing_bears_is_told_by_the_option_that_gave_it() {
        let hints = [
            json!({"pointer": "/select/failure_code", "detail": "no task", "suggestions": ["smtp-down"]}),
            json!({"pointer": "/select/label/line", "detail": "none", "suggestions": [], "not_permitted": 2}),
            json!({"parameter": "agent_id", "detail": "none", "suggestions": ["a", "b"]}),
        ];
        let told = [
            "--failure-code: no task; did you mean smtp-down?",
            "--label line: none (2 more that this token may not see)",
            "--agent: none; did you mean a, b?",
        ];
        assert_eq!(lines(&hints), told);
    }
}
