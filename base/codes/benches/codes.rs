//! How fast each function is at the sizes that matter:
//! `cargo bench -p holdfast-codes --bench codes`.
//!
//! The other crates' CRC and Adler are measured beside ours as a yardstick.

use std::hint::black_box;

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use holdfast_codes::{
    adler32, adler32_patch, crc32c, crc32c_patch, crc32c_u64, gf_mul_into, gf_mul_xor_into,
    is_zero, pq_encode, xor_delta, xor_into, xor_many,
};

const SIZES: [usize; 6] = [16, 64, 256, 1024, 4096, 65_536];

fn data(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * i / 7) as u8).collect()
}

fn sums(c: &mut Criterion) {
    let data = data(65_536);
    let mut group = c.benchmark_group("crc32c");
    for n in SIZES {
        group.throughput(Throughput::Bytes(n as u64));
        group.bench_with_input(BenchmarkId::new("ours", n), &data[..n], |b, bytes| {
            b.iter(|| crc32c(0, black_box(bytes)));
        });
        group.bench_with_input(BenchmarkId::new("crc-fast", n), &data[..n], |b, bytes| {
            b.iter(|| crc_fast::checksum(Crc32Iscsi, black_box(bytes)));
        });
    }
    group.throughput(Throughput::Bytes(8));
    group.bench_function("word", |b| b.iter(|| crc32c_u64(black_box(1), black_box(2))));
    group.finish();

    let mut group = c.benchmark_group("adler32");
    for n in SIZES {
        group.throughput(Throughput::Bytes(n as u64));
        group.bench_with_input(BenchmarkId::new("ours", n), &data[..n], |b, bytes| {
            b.iter(|| adler32(1, black_box(bytes)));
        });
        group.bench_with_input(BenchmarkId::new("simd-adler32", n), &data[..n], |b, bytes| {
            b.iter(|| simd_adler32::adler32(&black_box(bytes)));
        });
    }
    group.finish();
}

fn patches(c: &mut Criterion) {
    let data = data(4096);
    let mut group = c.benchmark_group("patch in 4 KiB");
    for n in [8, 64, 256] {
        let (delta, new) = (&data[..n], &data[n..2 * n]);
        group.bench_function(BenchmarkId::new("crc32c", n), |b| {
            b.iter(|| crc32c_patch(black_box(1), black_box(delta), black_box(4096 - n)));
        });
        group.bench_function(BenchmarkId::new("adler32", n), |b| {
            b.iter(|| {
                adler32_patch(black_box(1), black_box(delta), black_box(new), black_box(4096 - n))
            });
        });
    }
    group.finish();
}

fn parity(c: &mut Criterion) {
    let (a, b, mut out, mut q) = (data(65_536), data(65_536), data(65_536), data(65_536));
    let mut group = c.benchmark_group("parity");
    for n in SIZES {
        let (a, b) = (&a[..n], &b[..n]);
        group.throughput(Throughput::Bytes(n as u64));
        group.bench_function(BenchmarkId::new("xor_into", n), |bench| {
            bench.iter(|| xor_into(black_box(&mut out[..n]), black_box(a)));
        });
        group.bench_function(BenchmarkId::new("xor_delta", n), |bench| {
            bench.iter(|| xor_delta(black_box(&mut out[..n]), black_box(a), black_box(b)));
        });
        group.bench_function(BenchmarkId::new("gf_mul_into", n), |bench| {
            bench.iter(|| gf_mul_into(black_box(&mut out[..n]), black_box(a), black_box(77)));
        });
        group.bench_function(BenchmarkId::new("gf_mul_xor_into", n), |bench| {
            bench.iter(|| gf_mul_xor_into(black_box(&mut out[..n]), black_box(a), black_box(77)));
        });
        let zeros = vec![0; n];
        group.bench_function(BenchmarkId::new("is_zero", n), |bench| {
            bench.iter(|| is_zero(black_box(&zeros)));
        });
        let rows = [a, b, a, b];
        group.throughput(Throughput::Bytes(4 * n as u64));
        group.bench_function(BenchmarkId::new("4+1", n), |bench| {
            bench.iter(|| xor_many(black_box(&mut out[..n]), black_box(&rows)));
        });
        group.bench_function(BenchmarkId::new("4+2", n), |bench| {
            bench.iter(|| {
                pq_encode(black_box(&mut out[..n]), black_box(&mut q[..n]), black_box(&rows));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, sums, patches, parity);
criterion_main!(benches);
