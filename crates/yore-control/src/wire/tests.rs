//! Everything that travels arrives unchanged, and no bytes do harm.

mod samples;

use super::*;
use crate::{Page, Saying, Take};
use proptest::prelude::*;
use samples::{
    all_answers, all_requests, answers, device_errors, errors, queries, query_results, requests, row,
};
use serde::de::{Deserialize, Deserializer, Visitor};
use std::collections::BTreeSet;
use std::fmt::Debug;
use yore_device::DeviceError;
use yore_fs::{EventNo, Timestamp, What};

/// Collects the names of an enum's variants, and reads nothing.
struct Variants<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for Variants<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> std::result::Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("no enum"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, Self::Error> {
        self.0.extend(variants);
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// Fails unless there is a sample of each variant.
#[track_caller]
fn is_complete<T: for<'de> Deserialize<'de> + Debug>(samples: &[T]) {
    let mut variants = Vec::new();
    assert!(T::deserialize(Variants(&mut variants)).is_err() && !variants.is_empty());
    let name = |sample: &T| {
        let text = format!("{sample:?}");
        text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_string()
    };
    let there: BTreeSet<String> = samples.iter().map(name).collect();
    let missing: Vec<_> = variants.into_iter().filter(|name| !there.contains(*name)).collect();
    assert!(missing.is_empty(), "no sample of {missing:?}");
}

#[track_caller]
fn arrives<T: Serialize + DeserializeOwned + Debug>(value: &T) {
    let bytes = encode(value).unwrap();
    assert!(bytes.len() <= BYTES);
    let mut buffer = vec![0; BYTES];
    buffer[..bytes.len()].copy_from_slice(&bytes);
    let back: T = decode(&buffer).unwrap();
    assert_eq!(format!("{back:?}"), format!("{value:?}"));
}

/// Bits of a difference that mean nothing are refused, and times that are none.
#[test]
fn what_means_nothing_is_refused() {
    let bytes = postcard::to_extend(&What::all().bits(), Vec::new()).unwrap();
    assert_eq!(decode_content::<What>(&bytes), Ok(What::all()));
    let bytes = postcard::to_extend(&(What::all().bits() + 1), Vec::new()).unwrap();
    assert_eq!(decode_content::<What>(&bytes), Err(Wrong::Meaning));
}

/// Everything that travels arrives unchanged, in each of its variants. This test fails for a new variant
/// without a sample.
#[test]
fn everything_arrives() {
    is_complete(&device_errors());
    is_complete(&errors());
    is_complete(&requests());
    is_complete(&queries());
    is_complete(&query_results());
    is_complete(&answers());
    let devices = device_errors().into_iter().map(Error::Device);
    for error in errors().into_iter().chain(devices) {
        arrives(&Err::<Answer, Error>(error));
    }
    all_requests().iter().for_each(arrives);
    all_answers().into_iter().for_each(|answer| arrives(&Ok::<Answer, Error>(answer)));
}

/// The bytes of this version. If this fails, the encoding has changed: increase [`VERSION`], and put the new
/// sum here. Otherwise a daemon of yesterday would read a request of today as another one.
#[test]
fn the_version_changes_with_the_bytes() {
    let mut all = Vec::new();
    all_requests().iter().for_each(|request| all.extend(encode(request).unwrap()));
    all_answers().into_iter().for_each(|answer| all.extend(encode(&Ok::<Answer, Error>(answer)).unwrap()));
    errors().into_iter().for_each(|error| all.extend(encode(&Err::<Answer, Error>(error)).unwrap()));
    let devices = device_errors().into_iter();
    devices.for_each(|error| all.extend(encode(&Err::<Answer, Error>(error.into())).unwrap()));
    // FNV-1a.
    let sum = all
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    assert_eq!((VERSION, sum), (12, SUM), "{sum:#x}");
}

const SUM: u64 = 0x7f70_1dcb_1a11_5582;

/// If the command is newer or older than the daemon, the error says so; the bytes are not taken for something
/// else that they happen to encode.
#[test]
fn versions_are_told_apart() {
    let bytes = encode(&Request::Seen).unwrap();
    for other in [0, VERSION + 1, u32::MAX] {
        let mut changed = bytes.clone();
        changed[4..8].copy_from_slice(&other.to_le_bytes());
        assert_eq!(decode_request(&changed), Err(Wrong::Version(other)));
    }
    assert_eq!(decode_request(&[0; BYTES]), Err(Wrong::Meaning));
    assert!(matches!(decode_answer(&encode_nothing()), Err(Wrong::Meaning)));
}

/// A message that does not fit is refused at encoding, and not truncated; an error that is too long arrives
/// shortened.
#[test]
fn what_is_too_long() {
    assert!(encode_request(&Request::VersionSeen { name: vec![1; BYTES] }).is_err());
    let long = Err(Error::Refused("x".repeat(BYTES)));
    let answer = decode_answer(&encode_answer(&long)).unwrap();
    assert!(matches!(answer, Err(Error::Refused(text)) if text.len() == 1024));
    for wrong in [1, 1 << 20, u32::MAX - 1] {
        let bytes = with_length(encode(&Request::Seen).unwrap(), wrong + 1);
        assert_eq!(decode_request(&bytes), Err(Wrong::Meaning), "{wrong}");
    }
}

/// Errors nested thousands deep are refused, because they would exhaust the reader's stack.
#[test]
fn no_error_is_too_deep() {
    let stopped = |inner: &[u8]| [&[variant("Stopped")][..], inner].concat();
    let after = |inner: &[u8]| {
        let at = names::<DeviceError>().iter().position(|name| *name == "WrittenAfterError").unwrap() as u8;
        [&[at, 0, 0][..], inner].concat()
    };
    let nested = |depth: usize, wrap: &dyn Fn(&[u8]) -> Vec<u8>, end: Vec<u8>| {
        let one = wrap(&[]);
        let content = [&[1][..], &one.repeat(depth), &end].concat();
        let bytes = [head(content.len() as u32), content].concat();
        assert!(bytes.len() <= BYTES);
        decode_answer(&bytes).is_ok()
    };
    assert!(nested(15, &stopped, vec![0]));
    assert!(!nested(17, &stopped, vec![0]));
    assert!(!nested(16_000, &stopped, vec![0]));
    // A device's error is nested below the library's.
    let device = |depth: usize| {
        let one = after(&[]);
        let content = [&[1, variant("Device")][..], &one.repeat(depth), &after(&[])].concat();
        decode_answer(&[head(content.len() as u32), content].concat()).is_ok()
    };
    assert!(!device(5_000));
}

fn names<T: for<'de> Deserialize<'de>>() -> Vec<&'static str> {
    let mut variants = Vec::new();
    let _ = T::deserialize(Variants(&mut variants));
    variants
}

fn variant(name: &str) -> u8 {
    names::<Error>().iter().position(|variant| *variant == name).unwrap() as u8
}

/// A daemon that lies about the texts of its program fills no memory: beyond some number they all become one
/// text.
#[test]
fn texts_are_bounded() {
    let read = |text: &str| {
        let content =
            [&[1, variant("Invalid")][..], &postcard::to_extend(text, Vec::new()).unwrap()].concat();
        match decode_answer(&[head(content.len() as u32), content].concat()) {
            Ok(Err(Error::Invalid { what })) => what,
            other => panic!("{other:?}"),
        }
    };
    let first = read("a first one");
    assert_eq!(first, "a first one");
    let texts: Vec<_> = (0..3000).map(|n| read(&format!("text {n}"))).collect();
    assert_eq!(texts[0], "text 0");
    assert!(texts[2999].contains("no words"));
    assert!(std::ptr::eq(read("a first one"), first));
    assert!(read(&"x".repeat(5000)).contains("no words"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// No bytes panic, neither random bytes nor a message with some bytes changed.
    #[test]
    fn no_bytes_panic(
        content in proptest::collection::vec(any::<u8>(), 0..300),
        which in any::<proptest::sample::Index>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        event in any::<proptest::sample::Index>(),
    ) {
        let _ = decode_request(&content);
        let _ = decode_answer(&content);
        let framed = [head(content.len() as u32), content].concat();
        let _ = decode_request(&framed);
        let _ = decode_answer(&framed);
        let mut good: Vec<Vec<u8>> = all_requests().iter().map(|request| encode(request).unwrap()).collect();
        good.extend(all_answers().into_iter().map(|answer| encode_answer(&Ok(answer))));
        good.extend(errors().into_iter().map(|error| encode_answer(&Err(error))));
        let mut bytes = which.get(&good).clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = decode_request(&bytes);
        let _ = decode_answer(&bytes);
        bytes.truncate(event.index(bytes.len()));
        let _ = decode_request(&bytes);
        let _ = decode_answer(&bytes);
    }

    /// Texts and numbers of any kind arrive.
    #[test]
    fn any_fields_arrive(
        texts in proptest::array::uniform3(".{0,200}"),
        name in proptest::collection::vec(any::<u8>(), 0..300),
        numbers in proptest::collection::vec(any::<u64>(), 0..257),
        (seconds, nanos) in (any::<i64>(), 0..1_000_000_000_u32),
        flags in proptest::array::uniform4(any::<bool>()),
    ) {
        let [name_of, description, hold_reason] = texts.clone();
        let [held, undo, wait, stays] = flags;
        let time = Some(Timestamp { seconds, nanos });
        arrives(&Request::Take(Take { name: name_of, description, hold_reason, time, held, undo, wait, stays }));
        let [a, b, c] = texts;
        let saying = Saying { name: Some(a.clone()), description: Some(b), hold: Some(Some(c)) };
        arrives(&Request::Describe { number: EventNo(seconds as u64), saying });
        arrives(&Request::Forget { numbers: numbers.into_iter().map(EventNo).collect() });
        arrives(&Ok::<Answer, Error>(Answer::Page(Page { rows: vec![row(&a, Some(&name))], next: None })));
        arrives(&Request::VersionSeen { name });
    }
}
