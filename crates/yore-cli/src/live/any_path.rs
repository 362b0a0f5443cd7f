//! Paths in what a daemon says of itself: as text, or as bytes if they are not UTF-8. Serde has no form for
//! such paths.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The two forms.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes(Vec<u8>),
}

impl Form {
    fn of(path: &Path) -> Form {
        match path.to_str() {
            Some(text) => Form::Text(text.to_string()),
            None => Form::Bytes(OsStr::as_bytes(path.as_os_str()).to_vec()),
        }
    }

    fn path(self) -> PathBuf {
        match self {
            Form::Text(text) => text.into(),
            Form::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

/// Writes a path.
pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    Form::of(path).serialize(to)
}

/// Reads a path.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    Form::deserialize(from).map(Form::path)
}

/// Writes a path that there may not be.
pub fn serialize_or_none<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(Form::of).serialize(to)
}

/// Reads a path that there may not be.
pub fn deserialize_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::<Form>::deserialize(from)?.map(Form::path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Said {
        #[serde(serialize_with = "super::serialize", deserialize_with = "super::deserialize")]
        path: PathBuf,
        #[serde(default, serialize_with = "serialize_or_none", deserialize_with = "deserialize_or_none")]
        other: Option<PathBuf>,
    }

    /// Promises that every path arrives as it was. One that was no text could not be said at all.
    #[test]
    fn paths_of_any_bytes() {
        let odd = PathBuf::from(OsStr::from_bytes(b"/v\xff, \n"));
        let said = Said { path: odd.clone(), other: Some(odd) };
        assert_eq!(serde_json::from_str::<Said>(&serde_json::to_string(&said).unwrap()).unwrap(), said);
        let said = Said { path: "/v".into(), other: None };
        assert_eq!(serde_json::to_string(&said).unwrap(), r#"{"path":"/v","other":null}"#);
        // As earlier daemons say it.
        assert_eq!(serde_json::from_str::<Said>(r#"{"path":"/v"}"#).unwrap(), said);
    }
}
