#![no_main]
//! See `muster_fuzz::bodies::dump`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| muster_fuzz::bodies::dump(data));
