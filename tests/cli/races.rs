//! Processes that race.

use crate::support::{EFFECT, Place};

#[test]
fn two_processes_race_run_over_200_keys_and_200_effects_happen() {
    const KEYS: usize = 200;
    let place = Place::quick_with_ledger();
    let racer = || {
        let mut ran = 0;
        for key in 0..KEYS {
            let said = place.run(&format!("k{key}"), "", &format!("echo k{key} >> effects.log; echo k{key}"));
            match said.code {
                Some(0) => {
                    ran += usize::from(!said.err.contains("repeat"));
                    said.prints(&format!("k{key}\n"));
                }
                _ => drop(said.code(75)),
            }
        }
        ran
    };
    let ran = std::thread::scope(|scope| {
        let racers = [scope.spawn(racer), scope.spawn(racer)];
        racers.into_iter().map(|racer| racer.join().unwrap()).sum::<usize>()
    });
    assert_eq!((ran, place.effects()), (KEYS, KEYS));
    let text = place.read("effects.log");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), KEYS);
    place.once(&["verify", "--ledger", "l.redb"]).code(0);
    println!("{KEYS} keys raced");
}

#[test]
fn processes_race_to_create() {
    const ROUNDS: usize = 5;
    for _ in 0..ROUNDS {
        let place = Place::new();
        let racers: Vec<_> = ["a", "a", "b", "b"].map(|key| place.start(key, "--create --wait 60s", EFFECT)).into();
        for racer in racers {
            racer.finish().code(0).prints("effect\n");
        }
        assert_eq!(place.effects(), 2);
        let stats = place.once(&["stats", "--ledger", "l.redb", "--json"]).code(0).json();
        assert_eq!((&stats["done"], &stats["epoch"]), (&2.into(), &1.into()));
    }
}

#[test]
fn two_inits_make_one_ledger() {
    let place = Place::new();
    let racers =
        [(); 2].map(|()| crate::support::Running(place.command(&["init", "--ledger", "l.redb"]).spawn().unwrap()));
    let mut codes: Vec<_> = racers.map(|racer| racer.finish().code.unwrap()).into();
    codes.sort_unstable();
    assert_eq!(codes, [0, 69]);
    place.run("a", "", "true").code(0);
}
