//! Keys of tokens, from the system's random generator.

use pathcall_wire::TokenKey;
use rand::TryRng;
use rand::rngs::{SysError, SysRng};

/// Generates a random key.
pub(crate) fn random_key() -> Result<TokenKey, SysError> {
    Ok(TokenKey::new([SysRng.try_next_u64()?, SysRng.try_next_u64()?]))
}
