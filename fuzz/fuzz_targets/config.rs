#![no_main]
//! See `muster_fuzz::bodies::config`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| muster_fuzz::bodies::config(data));
