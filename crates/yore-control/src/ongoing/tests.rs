//! Long answers come in parts, and questions have names.

use super::*;
use crate::wire::{decode_answer, decode_parts, BYTES};

fn long(rows: usize) -> Result<Answer> {
    let path = vec![7; 200];
    let rows = (0..rows as u64).map(|n| yore_fs::Difference {
        change: yore_fs::Change::Added,
        kind: yore_fs::FileKind::Regular,
        inode: yore_fs::InodeNo(n),
        incarnation: yore_fs::Incarnation(1),
        path: path.clone(),
        old_path: None,
        what: yore_fs::What::empty(),
        before: None,
        after: None,
    });
    Ok(Answer::QueryResult(crate::QueryResult::Differences(rows.collect())))
}

/// The first part of an answer: its key, the whole length, its bytes.
fn first(ongoing: &Ongoing, uid: u32, answer: &Result<Answer>) -> (u64, u64, Vec<u8>) {
    let bytes = ongoing.encode(uid, answer);
    assert!(bytes.len() <= BYTES);
    match decode_answer(&bytes).unwrap().unwrap() {
        Answer::Part { key, length, bytes } => (key, length, bytes),
        other => panic!("{other:?}"),
    }
}

/// The parts of an answer make the whole answer. They are not kept once they have been read, and only the
/// user who asked gets them.
#[test]
fn parts_are_the_answer() {
    let (ongoing, answer) = (Ongoing::default(), long(400));
    let (key, length, mut all) = first(&ongoing, 9, &answer);
    assert!((all.len() as u64) < length);
    assert!(matches!(ongoing.part(0, key, all.len() as u64), Err(Error::Stale)));
    assert!(matches!(ongoing.part(9, key + 1, all.len() as u64), Err(Error::Stale)));
    for beyond in [length, u64::MAX] {
        assert!(matches!(ongoing.part(9, key, beyond), Err(Error::Invalid { .. })));
    }
    while (all.len() as u64) < length {
        let part = ongoing.part(9, key, all.len() as u64);
        let travelled = decode_answer(&ongoing.encode(9, &part)).unwrap();
        let Ok(Answer::Part { key: of, length: whole, bytes }) = travelled else { panic!("{travelled:?}") };
        assert_eq!((of, whole), (key, length));
        all.extend(bytes);
    }
    assert_eq!(decode_parts(&all).unwrap().unwrap(), answer.unwrap());
    assert!(ongoing.answers.lock().stored.is_empty(), "what was read is not kept");
}

/// A short answer is one message, and nothing of it is kept. An answer that is longer than any may be is
/// refused, and an error that does not fit is shortened.
#[test]
fn short_and_too_long() {
    let ongoing = Ongoing { most: 100_000, ..Ongoing::default() };
    assert_eq!(decode_answer(&ongoing.encode(0, &long(3))).unwrap().unwrap(), long(3).unwrap());
    assert!(matches!(decode_answer(&ongoing.encode(0, &long(1000))).unwrap(), Err(Error::Refused(_))));
    let error = Err(Error::Refused("x".repeat(BYTES)));
    assert!(matches!(decode_answer(&ongoing.encode(0, &error)).unwrap(), Err(Error::Refused(_))));
    assert!(ongoing.answers.lock().stored.is_empty());
    let mut rows = ongoing.rows();
    while rows.push([7u8; 32]).is_continue() {}
    assert_eq!(rows.len(), 100_000 / 32 + 1);
    assert!(matches!(rows.all(), Err(Error::Refused(_))));
}

/// Many requests push out the oldest answers, and the daemon keeps no more than it may.
#[test]
fn few_are_kept() {
    let ongoing = Ongoing::default();
    let (key, _, bytes) = first(&ongoing, 9, &long(400));
    for _ in 0..20 {
        first(&ongoing, 0, &long(400));
    }
    assert_eq!(ongoing.answers.lock().stored.len(), STORED_MOST);
    assert!(matches!(ongoing.part(9, key, bytes.len() as u64), Err(Error::Stale)));
}

/// The progress of a question can be asked for by its user and name, as long as it is being answered.
#[test]
fn questions_have_names() {
    let ongoing = Ongoing::default();
    let asked = ongoing.begin(9, 5, None).unwrap();
    let _of_none = ongoing.begin(9, 0, None).unwrap();
    assert_eq!(ongoing.how_far(9, 5), Some(asked.progress.get()));
    ongoing.break_off(0, 5);
    ongoing.break_off(9, 4);
    assert!(!asked.is_broken_off());
    ongoing.break_off(9, 5);
    assert!(asked.is_broken_off());
    assert_eq!([ongoing.how_far(0, 5), ongoing.how_far(9, 4), ongoing.how_far(9, 0)], [None; 3]);
    drop(asked);
    assert_eq!(ongoing.how_far(9, 5), None);
}

/// A user could have any number of long questions answered at once. Now there is room for some, whether they
/// have names or not, and there is room again when one of them is answered. Others are not concerned.
#[test]
fn questions_of_one_user_are_few() {
    let ongoing = Ongoing::default();
    let mut asked: Vec<_> = (0..3).map(|name| ongoing.begin(9, name, Some(3)).unwrap()).collect();
    let refused = ongoing.begin(9, 7, Some(3)).err();
    assert!(matches!(&refused, Some(Error::Refused(why)) if why.contains("user 9")), "{refused:?}");
    ongoing.begin(8, 7, Some(3)).unwrap();
    ongoing.begin(9, 7, None).unwrap();
    asked.pop();
    ongoing.begin(9, 7, Some(3)).unwrap();
}
