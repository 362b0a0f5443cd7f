#![no_main]
//! `yore_faults::targets::log` under libFuzzer.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| yore_faults::targets::log(bytes));
