//! See `muster_fuzz::bodies::dump`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| muster_fuzz::bodies::dump(data));
