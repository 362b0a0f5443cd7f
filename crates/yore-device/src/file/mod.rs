//! Image files and block devices of the host.
//!
//! **Durability.** A flush is `fdatasync`. The first flush of a file that this device created is a full
//! `fsync` of the file and of its directory, because the file's size and name are not data. After a write or
//! flush has failed, every later write and flush is refused with
//! [`WrittenAfterError`](crate::DeviceError::WrittenAfterError): the host marks pages clean that it could not
//! write. The next `fdatasync` would succeed without them, and whoever believes it loses data.
//!
//! **Direct I/O** goes around the host's page cache, which would otherwise hold everything twice. The device
//! asks for it after opening and tries it with one read, because some file systems accept the flag and refuse
//! the I/O. Memory that is not aligned is copied through an aligned buffer on the way.
//!
//! [`lock`] keeps others out; **batches** of many requests go to the kernel at once through [`ring`], or one
//! by one where the host has no io_uring.
//!
//! **Length.** Whoever may write an image file may also shorten it while it is in use. The host would then
//! let a write behind the end make the file longer again, with a hole where data was. So each write and each
//! flush first checks that all bytes in use ([`Device::use_up_to`](crate::Device::use_up_to)) are still
//! there, and fails with [`Shortened`](crate::DeviceError::Shortened) if not.
//!
//! A regular file that is not a whole number of blocks long is used up to its last whole block.

mod device;
mod failure;
mod host;
mod lock;
mod open;
mod ring;

pub use device::FileDevice;
pub use open::{CreateOptions, Direct, OpenOptions};

#[cfg(test)]
mod tests;
