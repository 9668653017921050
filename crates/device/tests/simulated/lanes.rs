//! Copies that are queued and not waited for, and what comes behind a mark.

use device::{Pinned, Rows, cuda};

use crate::harness::{Simulated, to_host, with};

#[test]
fn a_mark_is_reached_when_all_before_it_has_happened() {
    with(
        "lanes::a_mark_is_reached_when_all_before_it_has_happened",
        &[],
        &[],
        || {
            let (cuda, driver) = (cuda().unwrap(), Simulated::get());
            for dev in [1, 0] {
                let memory = driver.alloc(1000, dev);
                let host = Pinned::new(cuda, 1000, dev).unwrap();
                let (down, up) = (cuda.lane(dev).unwrap(), cuda.lane(dev).unwrap());
                // SAFETY:
                // - the pinned memory is ours, and as large.
                unsafe { host.as_ptr().write_bytes(7, 1000) };
                // SAFETY:
                // - `memory` and `host` are 1000 bytes, kept until both lanes were waited for.
                let left = unsafe { up.take(memory, host.as_ptr(), Rows::line(1000)) }
                    .and_then(|()| up.mark())
                    .unwrap();
                down.follow(&left).unwrap();
                // SAFETY:
                // - as above; the device writes behind what it reads.
                let arrived = unsafe { down.bring(host.as_ptr(), memory, Rows::line(1000)) }
                    .and_then(|()| down.mark())
                    .unwrap();
                // Nobody has waited yet, so nothing has happened; who asks moves it on.
                assert!(!arrived.reached().unwrap());
                arrived.wait().unwrap();
                assert!(arrived.reached().unwrap() && left.reached().unwrap());
                assert_eq!(to_host(cuda, memory, 1000, dev), [7; 1000]);
                down.wait().and_then(|()| up.wait()).unwrap();
                assert_eq!(driver.current(), -1, "what was current is current again");
            }
        },
    );
}

#[test]
fn lanes_and_marks_are_used_again() {
    with("lanes::lanes_and_marks_are_used_again", &[], &[], || {
        let (cuda, driver) = (cuda().unwrap(), Simulated::get());
        for _ in 0..50 {
            let lanes = [cuda.lane(0).unwrap(), cuda.lane(0).unwrap()];
            drop(lanes.map(|lane| (lane.mark().unwrap(), lane)));
        }
        assert_eq!(driver.calls("cuStreamCreate"), 2);
        assert_eq!(driver.calls("cuEventCreate"), 2);
    });
}

#[test]
fn a_stream_of_somebody_elses_is_followed() {
    with(
        "lanes::a_stream_of_somebody_elses_is_followed",
        &[],
        &[],
        || {
            let (cuda, driver) = (cuda().unwrap(), Simulated::get());
            let memory = driver.alloc(100, 0);
            let theirs = std::thread::spawn(move || {
                let stream = cuda.stream(0).unwrap().0;
                driver.launch(stream, memory, 9, 100, 0);
                stream
            });
            let theirs = theirs.join().unwrap();
            let ours = cuda.lane(0).unwrap();
            // SAFETY:
            // - A stream of the crate's, which live for ever.
            unsafe { cuda.follow(theirs, 0) }.unwrap();
            assert_eq!(to_host(cuda, memory, 100, 0), [9; 100]);
            drop(ours);
        },
    );
}

/// Rows of 3 bytes, 10 apart, follow each other in host memory, and what lies between them is nobody's business.
#[test]
fn rows_are_packed_on_the_way() {
    with("lanes::rows_are_packed_on_the_way", &[], &[], || {
        let (cuda, driver) = (cuda().unwrap(), Simulated::get());
        let memory = driver.alloc(100, 0);
        let (all, packed) = (
            Pinned::new(cuda, 100, 0).unwrap(),
            Pinned::new(cuda, 100, 0).unwrap(),
        );
        let lane = cuda.lane(0).unwrap();
        let rows = Rows {
            first: 4,
            width: 3,
            rows: 9,
            pitch: 10,
        };
        // SAFETY:
        // - `memory`, `all` and `packed` are 100 bytes, which the rows are within, kept until the lane was waited for, and
        //   the host uses none of them meanwhile.
        let found = unsafe {
            for byte in 0..100 {
                all.as_ptr().add(byte).write(byte as u8);
            }
            packed.as_ptr().write_bytes(0xee, 100);
            lane.take(memory, all.as_ptr(), Rows::line(100)).unwrap();
            lane.bring(packed.as_ptr(), memory, rows).unwrap();
            lane.wait().unwrap();
            core::slice::from_raw_parts(packed.as_ptr(), 100).to_vec()
        };
        let mut expected: Vec<u8> = (0..9u8)
            .flat_map(|row| (4..7).map(move |at| row * 10 + at))
            .collect();
        expected.resize(100, 0xee);
        assert_eq!(found, expected);
        // SAFETY:
        // - as above.
        unsafe {
            packed.as_ptr().write_bytes(0xaa, 27);
            lane.take(memory, packed.as_ptr(), rows).unwrap();
            lane.wait().unwrap();
        }
        let found = to_host(cuda, memory, 100, 0);
        for (at, byte) in found.into_iter().enumerate() {
            let between = !(4..7).contains(&(at % 10)) || at >= 94;
            assert_eq!(byte, if between { at as u8 } else { 0xaa });
        }
    });
}
