//! See `muster_fuzz::bodies::requirements`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| muster_fuzz::bodies::requirements(data));
