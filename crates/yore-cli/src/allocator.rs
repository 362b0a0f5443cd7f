//! The allocator of this program.
//!
//! A volume in use has hundreds of thousands of small objects (inodes, nodes of maps) that are used at
//! random. jemalloc keeps objects of a size together, whatever the order in which they come and go. It does
//! not ask for huge pages: they spare the processor's TLB, but whoever first touches one waits until all 2
//! MiB of it are zeroed, and that made the whole tail of the latencies (docs/PERFORMANCE.md). Freed memory
//! goes back to the system after a second. Programs that use the library choose for themselves.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

// SAFETY: jemalloc looks for its settings under this name, and takes them for a string that ends with zero.
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: Option<&'static std::ffi::c_char> = {
    // SAFETY: the first byte of a static string, which lives as long as the program.
    Some(unsafe { &*c"dirty_decay_ms:1000".as_ptr() })
};
