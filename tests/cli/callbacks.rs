//! Callbacks that did not arrive, as an operator meets them.

use serde_json::{Value, json};

use crate::hub::{Hub, code, stderr, wait_until};
use crate::signals::{PATIENCE, Receiver, call_back, events};

#[test]
fn a_callback_that_was_given_up_is_found_and_sent_again_with_one_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(&folder.path().join("data"));
    let receiver = Receiver::start();
    let task = call_back(&hub, &receiver.url);
    receiver.answer.send(410).expect("it listens");
    let listed = |state: &str| hub.json(&["callbacks", "list", "--state", state]).as_array().cloned().expect("a list");
    wait_until("its receiver has gone", || listed("gone").len() == 1);
    let gone = listed("gone").remove(0);
    assert_eq!((&gone["reach_id"], &gone["attempts"]), (&json!(task), &json!(1)), "{gone}");
    let id = gone["callback_id"].as_str().expect("an id");

    let sent = hub.json(&["callbacks", "redrive", id]);
    assert_eq!((&sent["callback_id"], &sent["state"]), (&json!(id), &json!("due")), "{sent}");
    assert!(sent["receipt"]["seq"].is_u64(), "{sent}");
    for _ in 0..2 {
        receiver.came.recv_timeout(PATIENCE).expect("the first try, and then the second");
    }
    // It is being sent: nobody has answered yet.
    let twice = hub.reach(&["callbacks", "redrive", id]);
    assert!(code(&twice) == 5 && stderr(&twice).contains("callback-still-due"), "{}", stderr(&twice));
    receiver.answer.send(204).expect("it listens");
    wait_until("it arrives", || listed("due").is_empty());
    assert_eq!(events(&hub, &task, "callback-redriven").len(), 1);
    assert_eq!(events(&hub, &task, "callback-delivered").len(), 1);
    assert_eq!(hub.json(&["callbacks", "list"]), Value::Array(Vec::new()), "nothing is left to be done");
    let absent = hub.reach(&["callbacks", "redrive", "msg_01h455vb4pex5vsknk084sn02q"]);
    assert_eq!(code(&absent), 3, "{}", stderr(&absent));
    assert_eq!(hub.stop(), 0);
}
