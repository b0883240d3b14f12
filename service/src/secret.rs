//! Passwords, tokens and URLs that must not be shown, from an argument or a file: they print as `***`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, ensure};

/// A password, a token, or a URL that may contain one. As a clap argument it needs `hide_env_values = true`, since help
/// otherwise shows the variable's value.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Reads a file, without the line ending that most editors add.
    ///
    /// # Errors
    /// The file cannot be read or is empty; the error names its path.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let text = text.trim_end_matches(['\r', '\n']);
        ensure!(!text.is_empty(), "`{}` is empty", path.display());
        Ok(Self(text.to_owned()))
    }

    /// Returns the text itself. Call this only where it is used.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// The file of a secret. It is read once, since it may be a pipe.
#[derive(Clone, Debug)]
pub struct SecretFile {
    path: PathBuf,
    read: Arc<OnceLock<Result<Secret, String>>>,
}

impl SecretFile {
    /// Returns what is in the file.
    ///
    /// # Errors
    /// The file cannot be read or is empty; the error names its path.
    pub fn secret(&self) -> Result<Secret, String> {
        self.read.get_or_init(|| Secret::read(&self.path).map_err(|error| format!("{error:#}"))).clone()
    }
}

impl From<PathBuf> for SecretFile {
    fn from(path: PathBuf) -> Self {
        Self { path, read: Arc::default() }
    }
}

impl PartialEq for SecretFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for SecretFile {}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_always_prints_as_stars() {
        let secret = Secret::from("canary".to_owned());
        assert_eq!(format!("{secret} {secret:?} {:#?}", Some(&secret)), "*** *** Some(\n    ***,\n)");
        assert_eq!(secret.expose(), "canary");
    }

    #[test]
    fn a_secret_file_is_read_once_and_loses_its_last_line_ending_and_an_empty_one_is_named() {
        let folder = std::env::temp_dir().join(format!("tally-secret-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (full, empty) = (folder.join("full"), folder.join("empty"));
        std::fs::write(&full, "two words \r\n").unwrap();
        std::fs::write(&empty, "\n").unwrap();
        let file = SecretFile::from(full);
        let same = file.clone();
        assert_eq!(same.secret(), Ok(Secret::from("two words ".to_owned())));
        assert!(Secret::read(&empty).unwrap_err().to_string().ends_with("empty` is empty"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(file.secret(), same.secret());
        assert!(SecretFile::from(folder.join("none")).secret().unwrap_err().contains("none`: "));
        assert!(!format!("{file:?}").contains("two words"));
    }
}
