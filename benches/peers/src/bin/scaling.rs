//! How onceledger alone behaves as it grows: throughput, latency, bytes written, file and memory with 10
//! thousand to 5 million live claims, and over 10 million claims of which all but the youngest expire.
//!
//!     cargo run --release --manifest-path benches/peers/Cargo.toml --bin scaling -- --plots docs
//!
//! `--divide N` divides every count. Memory is this process's, so nothing else runs in it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onceledger_peers::ours::Ours;
use onceledger_peers::peer::Peer;
use onceledger_peers::subject::Subject;
use onceledger_peers::work::OUTCOME;
use onceledger_peers::{Result, drive, system};
use plotters::prelude::*;
use tempfile::TempDir;

const POPULATIONS: [u64; 4] = [10_000, 100_000, 1_000_000, 5_000_000];
const WAITING: usize = 1_024;
const WINDOW: Duration = Duration::from_secs(3);
const EXPIRING: u64 = 10_000_000;
const STEP: u64 = 250_000;
const KEEP: Duration = Duration::from_secs(10);

struct Arguments {
    dir: PathBuf,
    plots: Option<PathBuf>,
    divide: u64,
}

fn arguments() -> Result<Arguments> {
    let mut read = Arguments { dir: std::env::temp_dir(), plots: None, divide: 1 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--dir" => read.dir = value.into(),
            "--plots" => read.plots = Some(value.into()),
            "--divide" => read.divide = value.parse()?,
            _ => return Err(format!("unknown argument {argument}; there are --dir, --plots and --divide").into()),
        }
    }
    Ok(read)
}

/// What one population shows.
struct Point {
    live: u64,
    pairs_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    written_per_pair: f64,
    file_bytes: u64,
    memory_bytes: u64,
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    system::refuse_memory_disk(&arguments.dir)?;
    println!("Machine: {}. Directory: {}.\n", system::machine(), arguments.dir.display());
    let grown = grow(&arguments)?;
    let expired = expire(&arguments)?;
    if let Some(plots) = &arguments.plots {
        plot_grown(&plots.join("scaling-live.svg"), &grown)?;
        plot_expired(&plots.join("scaling-expiry.svg"), &expired)?;
    }
    Ok(())
}

fn file_bytes(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("ledger.redb")).map_or(0, |file| file.len())
}

/// Bytes that this process had written to a disk, by the kernel's count.
fn written() -> Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.ok_or("no write_bytes in /proc/self/io")?.parse()?)
}

fn grow(arguments: &Arguments) -> Result<Vec<Point>> {
    println!("Live claims, done and kept; {WAITING} waiting, outcomes of {} bytes:\n", OUTCOME.len());
    println!(
        "| live | pairs/s | p50 ms | p99 ms | bytes written a pair | file MiB | file bytes a claim | memory MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let dir = TempDir::with_prefix_in("scaling-", &arguments.dir)?;
    let ours = Ours::create(dir.path(), 0)?;
    let (mut points, mut live) = (Vec::new(), 0);
    for population in POPULATIONS.map(|population| population / arguments.divide) {
        drive::fill(&ours, live..population, OUTCOME)?;
        let before = written()?;
        let started = Instant::now();
        let mut latencies = drive::latencies(&ours, WAITING, WINDOW, drive::Timed::Pair)?;
        let elapsed = started.elapsed().as_secs_f64();
        let written = written()?.saturating_sub(before);
        latencies.sort_unstable();
        let at = |share: usize| latencies.get(latencies.len() * share / 100).map_or(0.0, Duration::as_secs_f64) * 1e3;
        let pairs = latencies.len() as f64;
        let point = Point {
            live: population,
            pairs_per_s: pairs / elapsed,
            p50_ms: at(50),
            p99_ms: at(99),
            written_per_pair: written as f64 / pairs,
            file_bytes: file_bytes(dir.path()),
            memory_bytes: system::memory("VmRSS")?,
        };
        live = population;
        println!(
            "| {} | {:.0} | {:.1} | {:.1} | {:.0} | {} | {:.0} | {} |",
            point.live,
            point.pairs_per_s,
            point.p50_ms,
            point.p99_ms,
            point.written_per_pair,
            point.file_bytes >> 20,
            point.file_bytes as f64 / (point.live as f64 + pairs),
            point.memory_bytes >> 20,
        );
        points.push(point);
    }
    ours.close()?;
    Ok(points)
}

/// What a while of expiry shows.
struct Moment {
    claims: u64,
    pairs_per_s: f64,
    file_bytes: u64,
    memory_bytes: u64,
}

fn expire(arguments: &Arguments) -> Result<Vec<Moment>> {
    println!("\nExpiry running: every claim is forgotten {} s after it was settled:\n", KEEP.as_secs());
    println!("| claims so far | pairs/s | file MiB | memory MiB |");
    println!("|---|---|---|---|");
    let dir = TempDir::with_prefix_in("scaling-", &arguments.dir)?;
    let ours = Ours::create_keeping(dir.path(), KEEP)?;
    let step = STEP / arguments.divide;
    let mut moments = Vec::new();
    for number in 0..EXPIRING / STEP {
        let started = Instant::now();
        drive::fill(&ours, number * step..(number + 1) * step, OUTCOME)?;
        let moment = Moment {
            claims: (number + 1) * step,
            pairs_per_s: step as f64 / started.elapsed().as_secs_f64(),
            file_bytes: file_bytes(dir.path()),
            memory_bytes: system::memory("VmRSS")?,
        };
        if number % 4 == 3 {
            println!(
                "| {} | {:.0} | {} | {} |",
                moment.claims,
                moment.pairs_per_s,
                moment.file_bytes >> 20,
                moment.memory_bytes >> 20
            );
        }
        moments.push(moment);
    }
    ours.close()?;
    Ok(moments)
}

const SIZE: (u32, u32) = (760, 300);

/// One line over `points` as half of a drawing, from 0 up.
fn line(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    caption: &str,
    unit: &str,
    points: &[(f64, f64)],
) -> Result<()> {
    let most = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).fold(1.0, f64::max) * 1.05;
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(32)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..most(|point| point.0), 0.0..most(|point| point.1))?;
    chart.configure_mesh().x_desc(unit).x_labels(6).y_labels(6).draw()?;
    chart.draw_series(LineSeries::new(points.iter().copied(), BLUE.stroke_width(2)).point_size(3))?;
    Ok(())
}

fn plot(path: &Path, unit: &str, left: (&str, &[(f64, f64)]), right: (&str, &[(f64, f64)])) -> Result<()> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let halves = root.split_evenly((1, 2));
    for (area, (caption, points)) in halves.iter().zip([left, right]) {
        line(area, caption, unit, points)?;
    }
    Ok(root.present()?)
}

fn plot_grown(path: &Path, points: &[Point]) -> Result<()> {
    let million = |point: &Point| point.live as f64 / 1e6;
    let pairs: Vec<_> = points.iter().map(|point| (million(point), point.pairs_per_s / 1e3)).collect();
    let memory: Vec<_> = points.iter().map(|point| (million(point), point.memory_bytes as f64 / 1e6)).collect();
    plot(path, "million live claims", ("thousand pairs a second", &pairs), ("memory, MB", &memory))
}

fn plot_expired(path: &Path, moments: &[Moment]) -> Result<()> {
    let million = |moment: &Moment| moment.claims as f64 / 1e6;
    let file: Vec<_> = moments.iter().map(|moment| (million(moment), moment.file_bytes as f64 / 1e6)).collect();
    let memory: Vec<_> = moments.iter().map(|moment| (million(moment), moment.memory_bytes as f64 / 1e6)).collect();
    plot(path, "million claims, expiring", ("file, MB", &file), ("memory, MB", &memory))
}
