//! Maps errors to numbers. No other place in the project does that.

use fuser::Errno;
use yore_fs::Error;

/// "Structure needs cleaning", which ext4 and xfs answer for damage. fuser has no name for it.
fn euclean() -> Errno {
    Errno::from_i32(libc::EUCLEAN)
}

/// The number for `error`. Where the choice is not obvious:
///
/// - `Corruption` is EUCLEAN, not EIO: the established "structure needs cleaning" sends people to the
///   checker, whereas EIO sends them to the cable. The device's own errors stay EIO.
/// - `Stopped` is EIO and not EROFS: a program that gets EROFS believes that its earlier writes are safe.
/// - `NoDataThere` is ENXIO, as lseek(2) promises.
/// - `AttributeTooLarge` is E2BIG, which setxattr(2) names for values. (Names above 255 bytes never get here:
///   the kernel refuses them with ERANGE. The caller's side gives the ERANGE of a buffer too small to hold a
///   value, because it knows the buffer's size.)
/// - `NoAttribute` is ENODATA, Linux's name for ENOATTR.
/// - `Unsupported` is EOPNOTSUPP, never ENOSYS: the kernel remembers ENOSYS for the whole connection.
/// - `OutOfOrder` is ERANGE, which no other failure to take a snapshot answers.
/// - `Refused` answers an attempt to open a volume; if a call on an open volume ever gives it, it is EINVAL.
/// - `Path` takes the number of the error that it wraps.
pub fn errno(error: &Error) -> Errno {
    match error.root() {
        Error::NotFound => Errno::ENOENT,
        Error::Exists => Errno::EEXIST,
        Error::NotADirectory => Errno::ENOTDIR,
        Error::IsADirectory => Errno::EISDIR,
        Error::NotEmpty => Errno::ENOTEMPTY,
        Error::NameTooLong => Errno::ENAMETOOLONG,
        Error::Invalid { .. } | Error::Refused(_) => Errno::EINVAL,
        Error::NotPermitted { .. }
        | Error::NotYours { .. }
        | Error::Protected { .. }
        | Error::TakenByOthers { .. } => Errno::EPERM,
        Error::Unfinished { source, .. } => errno(source),
        Error::NoSpace | Error::NeverFits { .. } | Error::HashFull { .. } => Errno::ENOSPC,
        Error::OutOfOrder { .. } => Errno::ERANGE,
        Error::TooManyLinks => Errno::EMLINK,
        Error::FileTooLarge => Errno::EFBIG,
        Error::ReadOnly => Errno::EROFS,
        Error::AcrossTimes => Errno::EXDEV,
        Error::Held { .. } | Error::HeldUntil { .. } | Error::Pinned { .. } => Errno::EBUSY,
        Error::LimitReached { .. } => Errno::EDQUOT,
        Error::Unsupported { .. } => Errno::EOPNOTSUPP,
        Error::NoAttribute => Errno::from_i32(libc::ENODATA),
        Error::AttributeTooLarge => Errno::E2BIG,
        Error::NoDataThere => Errno::ENXIO,
        Error::Loop => Errno::ELOOP,
        Error::Stale => Errno::from_i32(libc::ESTALE),
        Error::Corruption(_) => euclean(),
        Error::Device(_) | Error::Stopped { .. } => Errno::EIO,
        // The library may gain classes of errors; until one is listed here it is an I/O error.
        _ => Errno::EIO,
    }
}

/// Whether the daemon's log should mention the error: the caller's program cannot explain it. All that become
/// EIO are among these, so the daemon never answers EIO without a cause in the log.
pub(crate) fn worth_logging(error: &Error) -> bool {
    matches!(error.root(), Error::Corruption(_) | Error::Refused(_) | Error::Unfinished { .. })
        || errno(error).code() == libc::EIO
}

/// Whether the kernel turns the error into another when it writes back what programs stored through mappings:
/// it keeps ENOSPC for the next fsync and close of the file, and may turn any other number into EIO.
pub(crate) fn becomes_eio(error: &Error) -> bool {
    errno(error).code() != libc::ENOSPC
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device error inside a rollback that did not end was EIO, and the log did not say why.
    #[test]
    fn each_eio_is_logged() {
        let stopped = Error::Stopped { first: Box::new(Error::NoSpace) };
        let unfinished = Error::Unfinished { name: "rollback-1".into(), source: Box::new(stopped.clone()) };
        for error in [stopped, unfinished] {
            assert!(errno(&error).code() == libc::EIO && worth_logging(&error), "{error}");
        }
        for error in [Error::NoSpace, Error::Stale, Error::NotFound] {
            assert!(!worth_logging(&error), "{error}");
        }
        assert!(becomes_eio(&Error::Stale) && !becomes_eio(&Error::NeverFits { missing: 1 }));
    }

    /// These are the numbers that programs test for, and a path around an error changes none of them.
    #[test]
    fn numbers() {
        let table = [
            (Error::NotFound, libc::ENOENT),
            (Error::NotEmpty, libc::ENOTEMPTY),
            (Error::NoDataThere, libc::ENXIO),
            (Error::NoAttribute, libc::ENODATA),
            (Error::AttributeTooLarge, libc::E2BIG),
            (Error::Stale, libc::ESTALE),
            (Error::ReadOnly, libc::EROFS),
            (Error::AcrossTimes, libc::EXDEV),
            (Error::Held { event: 3 }, libc::EBUSY),
            (Error::Pinned { event: 3 }, libc::EBUSY),
            (Error::HeldUntil { event: 3, until: "then".into() }, libc::EBUSY),
            (Error::LimitReached { what: "holds", most: 3 }, libc::EDQUOT),
            (Error::NeverFits { missing: 1 }, libc::ENOSPC),
            (Error::HashFull { what: "names" }, libc::ENOSPC),
            (Error::Unsupported { what: "this" }, libc::EOPNOTSUPP),
            (Error::Stopped { first: Box::new(Error::NoSpace) }, libc::EIO),
        ];
        for (error, number) in table {
            assert_eq!(errno(&error).code(), number, "{error}");
            let wrapped = error.on_path("cannot open", b"a/b");
            assert_eq!(errno(&wrapped).code(), number, "{wrapped}");
        }
    }
}
