#![no_main]
//! `yore_faults::targets::format` under libFuzzer.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| yore_faults::targets::format(bytes));
