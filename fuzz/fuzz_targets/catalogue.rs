//! See `muster_fuzz::bodies::catalogue`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| muster_fuzz::bodies::catalogue(data));
