#![no_main]
//! See `muster_fuzz::bodies::extender`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| muster_fuzz::bodies::extender(data));
