//! Words that are constants of the program, read back from a recording.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer};

/// A word that is a constant of the program. By this name it may be a field of what is read: the reader keeps it.
pub type Word = &'static str;

/// Words read so far. A recording repeats few of them: names of conventions, keys of annotations.
static READ: Mutex<BTreeSet<Word>> = Mutex::new(BTreeSet::new());

/// Reads a word. Each is kept once, for as long as the process runs.
///
/// Errors: no text.
pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Word, D::Error> {
    let word = Cow::<'de, str>::deserialize(deserializer)?;
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = read.get(&*word) {
        return Ok(known);
    }
    let kept: Word = Box::leak(word.into_owned().into_boxed_str());
    read.insert(kept);
    Ok(kept)
}
