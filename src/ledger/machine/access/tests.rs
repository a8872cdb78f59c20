//! The rules of tokens: given what was proposed before, when this is proposed, then these events.

use crate::ledger::ids::{Digest, TokenId};
use crate::ledger::machine::access::{Reach, Scope, Token};
use crate::ledger::machine::command::Command;
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::event::Actor;
use crate::ledger::machine::world::World;
use crate::ledger::time::Millis;

fn id() -> TokenId {
    TokenId::new("ops").unwrap()
}

fn create(world: &World) -> Command {
    Command::CreateToken {
        token: Box::new(Token {
            id: id(),
            name: "operators".into(),
            secret: Digest::of(&[b"one"]),
            previous: None,
            scopes: vec![Scope::Operate],
            reach: Reach::All,
            agents: Vec::new(),
            capabilities: Vec::new(),
            expires_at: None,
            created_at: world.now,
        }),
    }
}

#[test]
fn a_token_id_is_taken_once_and_every_change_names_who_made_it() {
    let mut world = World::new();
    let command = create(&world);
    assert_eq!(world.ok(command.clone()), ["token-created"]);
    assert_eq!(world.log.last().unwrap().actor, Actor::Token(TokenId::new("caller").unwrap()));
    assert_eq!(world.refused(command), Rejection::TokenTaken { token: id() });
}

#[test]
fn a_rotated_tokens_old_secret_is_kept_until_the_overlap_is_over() {
    let mut world = World::new();
    let command = create(&world);
    world.ok(command);
    let (secret, overlap) = (Digest::of(&[b"two"]), Millis::secs(3_600));
    assert_eq!(world.ok(Command::RotateToken { token: id(), secret, overlap }), ["token-rotated"]);
    let token = &world.state.access().tokens[&id()];
    assert_eq!(token.secret, secret);
    assert_eq!(token.previous, Some((Digest::of(&[b"one"]), world.now.after(overlap))));
}

#[test]
fn a_revoked_token_is_gone_at_once() {
    let mut world = World::new();
    let command = create(&world);
    world.ok(command);
    assert_eq!(world.ok(Command::RevokeToken { token: id() }), ["token-revoked"]);
    assert!(world.state.access().tokens.is_empty());
    assert_eq!(world.refused(Command::RevokeToken { token: id() }), Rejection::TokenUnknown);
    let rotate = Command::RotateToken { token: id(), secret: Digest::default(), overlap: Millis(0) };
    assert_eq!(world.refused(rotate), Rejection::TokenUnknown);
}
