//! A data folder as a whole while no hub runs on it: the ledger, the key file and the callback secrets.
//!
//! Why here: the ledger knows its own files, the secrets know theirs, and only the composition root knows both.

use std::path::{Path, PathBuf};

use crate::hub::SECRETS_FILE;
use crate::ledger::store::keyfile::{self, KeyFileError};
use crate::ledger::store::place;
use crate::ledger::store::verify::{self, Accepted, Mended, RepairError, VerifyError, VerifyReport};
use crate::scheduler::outbound::secrets::{SecretError, Secrets};

/// Checks everything in the folder and changes nothing. `progress` gets the last seq checked and about how many there
/// are.
///
/// # Errors
/// [`VerifyError`] when it is in use or can't be read at all; damage is in the report.
pub fn verify(data: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport, VerifyError> {
    let mut report = verify::verify(data, progress)?;
    let path = data.join(SECRETS_FILE);
    // Without its keys nothing can be said of them, and the key file is named already.
    if let Ok(keys) = keyfile::load(data)
        && let Err(error) = Secrets::open(path.clone(), &keys)
    {
        report.note(None, &path, error);
    }
    Ok(report)
}

/// What a repair did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// What of the ledger was kept and given up; `None` if the ledger is sound and was left alone.
    pub ledger: Option<Accepted>,
    /// What was done to the key file.
    pub keys: Mended,
    /// Where the callback secrets lie now, if they could not be read any more and are given up.
    pub secrets: Option<PathBuf>,
}

/// Makes a damaged folder usable again, at the price of what is damaged, and keeps all that it replaces. What is sound
/// is left alone.
///
/// # Errors
/// [`RepairError`]; then nothing is lost, and the next run makes the rest.
pub fn accept_loss(data: &Path) -> Result<Repaired, RepairError> {
    // In use: then nothing may be touched.
    let report = verify::verify(data, &mut |_, _| {})?;
    let is_key_file = |file: &Path| file.file_name().is_some_and(|name| name == keyfile::KEY_FILE);
    let ledger_is_sound = report.is_sound() || report.problems.iter().all(|problem| is_key_file(&problem.file));
    // Leases are derived from the key: with another one they end, and only a new history says so.
    // So the history comes first: who is killed between the two must not find new keys beside the old leases.
    let loses_keys = keyfile::is_past_mending(data)?;
    let (ledger, keys) = if ledger_is_sound && !loses_keys {
        (None, keyfile::mend(data)?)
    } else {
        let accepted = verify::accept_loss(data)?;
        let keys = accepted.keys.clone();
        (Some(accepted), keys)
    };
    let secrets = give_up_secrets(data)?;
    Ok(Repaired { ledger, keys, secrets })
}

fn give_up_secrets(data: &Path) -> Result<Option<PathBuf>, RepairError> {
    let path = data.join(SECRETS_FILE);
    match Secrets::open(path.clone(), &keyfile::load(data)?) {
        Err(SecretError::Sealed) => {
            let names = (1..).map(|n: u32| data.join(format!("{SECRETS_FILE}.damaged-{n}")));
            let kept = names.into_iter().find(|kept| !kept.exists()).unwrap_or_else(|| path.with_extension("damaged"));
            let moved = place::rename(&path, &kept);
            moved.map_err(|source| RepairError::Keys(KeyFileError::Io { path, source }))?;
            Ok(Some(kept))
        }
        Ok(_) | Err(SecretError::Refused(_) | SecretError::Disk(_) | SecretError::Random(_)) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ledger::store::fjall::{FjallStore, Options};

    #[test]
    fn semantics_24_a_repair_that_dies_halfway_draws_no_new_key_beside_old_leases_and_is_made_again() {
        let data = tempfile::tempdir().unwrap();
        drop(FjallStore::open(data.path(), &Options::default()).unwrap());
        let keys = data.path().join(keyfile::KEY_FILE);
        fs::write(&keys, b"past mending").unwrap();
        // The old mark can't be kept there: so it ends right after the exchange.
        let obstacle = data.path().join("ledger.damaged-0.tip");
        fs::create_dir(&obstacle).unwrap();
        accept_loss(data.path()).unwrap_err();
        assert_eq!(fs::read(&keys).unwrap(), b"past mending");
        fs::remove_dir(&obstacle).unwrap();
        let repaired = accept_loss(data.path()).unwrap();
        assert!(repaired.ledger.is_some_and(|accepted| accepted.keys == repaired.keys), "with a new history");
        assert!(matches!(repaired.keys, Mended::DrawnAnew { .. }), "{:?}", repaired.keys);
        let repaired = accept_loss(data.path()).unwrap();
        assert_eq!((repaired.ledger, repaired.keys), (None, Mended::Sound));
    }
}
