//! Lanes, breakers and the ramp, with time as an argument.

use super::*;

fn id(n: u8) -> CallbackId {
    CallbackId([n; 16])
}

fn offer(hosts: &mut Hosts, host: &str, count: u8) {
    for n in 0..count {
        assert_eq!(hosts.offer(host, id(n), Timestamp(0)), Taken::Yes);
    }
}

fn sent(hosts: &mut Hosts, now: u64) -> Vec<String> {
    std::iter::from_fn(|| hosts.next(Timestamp(now)).map(|(host, _)| host)).collect()
}

#[test]
fn lanes_take_turns_and_an_unproven_host_gets_one_connection() {
    let mut hosts = Hosts::default();
    offer(&mut hosts, "a", 10);
    offer(&mut hosts, "b", 1);
    offer(&mut hosts, "c", 10);
    assert_eq!(sent(&mut hosts, 0), ["a", "b", "c"]);
    hosts.done("a", HostSays::Alive, Timestamp(1));
    assert_eq!(sent(&mut hosts, 1), ["a", "a", "a", "a"], "four once it has answered");
    assert_eq!(hosts.in_flight(), 6);
}

#[test]
fn callbacks_of_one_host_leave_in_the_order_in_which_they_became_due() {
    let mut hosts = Hosts::default();
    offer(&mut hosts, "a", 3);
    for n in 0..3 {
        assert_eq!(hosts.next(Timestamp(0)), Some(("a".to_owned(), id(n))));
        hosts.done("a", HostSays::Nothing, Timestamp(0));
    }
}

#[test]
fn five_failures_open_a_host_for_ten_seconds_then_one_probe_decides() {
    let mut hosts = Hosts::default();
    offer(&mut hosts, "dead", 20);
    for at in 0..5 {
        assert_eq!(sent(&mut hosts, at), ["dead"], "failure {at}");
        hosts.done("dead", HostSays::Failing, Timestamp(at));
    }
    assert_eq!(sent(&mut hosts, 10_003), [""; 0], "open: it waits and spends no try");
    assert_eq!(hosts.wake_at(), Some(Timestamp(10_004)));
    assert_eq!(sent(&mut hosts, 10_004), ["dead"], "one probe");
    hosts.done("dead", HostSays::Failing, Timestamp(10_010));
    assert_eq!(sent(&mut hosts, 20_009), [""; 0], "open again");
    assert_eq!(sent(&mut hosts, 20_010), ["dead"]);
    hosts.done("dead", HostSays::Alive, Timestamp(20_020));
    assert_eq!(sent(&mut hosts, 20_020), ["dead"; 4], "closed");
}

#[test]
fn an_open_host_does_not_hold_the_others() {
    let mut hosts = Hosts::default();
    offer(&mut hosts, "dead", 200);
    for at in 0..5 {
        assert_eq!(sent(&mut hosts, at), ["dead"]);
        hosts.done("dead", HostSays::Failing, Timestamp(at));
    }
    offer(&mut hosts, "well", 2);
    assert_eq!(sent(&mut hosts, 6), ["well"]);
    hosts.done("well", HostSays::Alive, Timestamp(7));
    assert_eq!(sent(&mut hosts, 7), ["well"]);
}

#[test]
fn hanging_hosts_leave_room_for_others_and_the_whole_is_bounded() {
    let mut hosts = Hosts::default();
    for n in 0..100 {
        offer(&mut hosts, &format!("hangs-{n:03}"), 10);
    }
    assert_eq!(sent(&mut hosts, 0).len(), IN_ALL);
    assert_eq!(hosts.in_flight(), IN_ALL);
    hosts.done("hangs-000", HostSays::Failing, Timestamp(1));
    assert_eq!(sent(&mut hosts, 1), ["hangs-064"], "the next in turn, not the one that failed");
}

#[test]
fn what_does_not_fit_into_a_lane_is_looked_for_again_once_it_has_room() {
    let mut hosts = Hosts::default();
    for n in 0..LANE {
        assert_eq!(hosts.offer("a", id(1), Timestamp(u64::try_from(n).expect("small"))), Taken::Yes);
    }
    assert_eq!(hosts.offer("a", id(2), Timestamp(5_000)), Taken::LaneFull);
    assert_eq!(hosts.offer("a", id(3), Timestamp(4_000)), Taken::LaneFull);
    assert_eq!(hosts.offer("b", id(3), Timestamp(0)), Taken::Yes, "others are not affected");
    assert_eq!(hosts.look_again("a"), None, "still full");
    for _ in 0..LANE - FEW / 2 {
        while let Some((host, _)) = hosts.next(Timestamp(9_000)) {
            hosts.done(&host, HostSays::Alive, Timestamp(9_000));
        }
    }
    assert_eq!(hosts.look_again("a"), Some(Timestamp(4_000)));
    assert_eq!(hosts.look_again("a"), None, "told once");
}

#[test]
fn quiet_lanes_are_forgotten() {
    let mut hosts = Hosts::default();
    for n in 0..100 {
        let host = format!("h{n}");
        offer(&mut hosts, &host, 1);
        assert_eq!(sent(&mut hosts, 0), [host.as_str()]);
        hosts.done(&host, HostSays::Nothing, Timestamp(0));
    }
    assert!(hosts.lanes.is_empty() && hosts.ready.is_empty() && hosts.opening.is_empty());
}

#[test]
fn semantics_21_callbacks_are_paced_after_a_start() {
    let mut ramp = Ramp::starting(Timestamp(1_000_000));
    let mut left = [0_u64; 25];
    for tenth in 0..250_u64 {
        let now = Timestamp(1_000_000 + tenth * 100);
        let mut burst = 0;
        while burst < 10_000 {
            match ramp.take(now) {
                Ok(()) => burst += 1,
                Err(later) => {
                    assert_eq!(later, Timestamp(now.0 + 100));
                    break;
                }
            }
        }
        left[usize::try_from(tenth / 10).expect("small")] += burst;
    }
    assert_eq!(left[..4], [50, 100, 150, 200]);
    assert!(left[20] >= 10_000, "no bound after 20 s");
}
