//! Keys of tokens, drawn from the system's randomness.

use pathcall_wire::TokenKey;
use rand::TryRng;
use rand::rngs::{SysError, SysRng};

/// Another key, that nobody knows.
pub(crate) fn draw() -> Result<TokenKey, SysError> {
    Ok(TokenKey::new([SysRng.try_next_u64()?, SysRng.try_next_u64()?]))
}
