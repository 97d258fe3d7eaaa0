//! See `muster_fuzz::bodies::form`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| muster_fuzz::bodies::form(data));
