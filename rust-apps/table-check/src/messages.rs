//! Point-to-point messages round the ring of ranks.

use crate::suite::{Context, IGNORE, Suite, input, output};
use mpi_runtime::{Basic, Comm, Datatype, Error, Mpi, Request, StatusBuf};

pub fn all(suite: &mut Suite) {
    suite.check("blocking sends and receives", blocking);
    suite.check("immediate sends", immediate);
    suite.check("sendrecv", sendrecv);
    suite.check("probe, mprobe and counts", probes);
    suite.check("any source, any tag, no process", wildcards);
}

type Send = unsafe fn(&Mpi, *const u8, i64, Datatype, i32, i32, Comm) -> Result<(), Error>;
type Isend = unsafe fn(&Mpi, *const u8, i64, Datatype, i32, i32, Comm) -> Result<Request, Error>;

fn blocking(c: &Context) {
    let mpi = c.mpi;
    let room = 4096 + i64::from(mpi.constants().bsend_overhead) * 4;
    let mut attached = vec![0u8; room as usize];
    // SAFETY:
    // - Every buffer is a local array as long as its count, and outlives the calls on it.
    // - The attached buffer outlives the detach below.
    unsafe {
        mpi.buffer_attach(attached.as_mut_ptr(), room)
            .expect("attach")
    };
    let sends: [(&str, Send); 4] = [
        ("send", Mpi::send),
        ("ssend", Mpi::ssend),
        ("bsend", Mpi::bsend),
        ("rsend", Mpi::rsend),
    ];
    for (tag, (name, send)) in sends.into_iter().enumerate() {
        let tag = 10 + tag as i32;
        let values: Vec<i32> = (0..7).map(|i| 100 * c.rank + i).collect();
        let mut received = [-1i32; 9];
        let mut status = StatusBuf::new();
        // SAFETY:
        // - As above; the receive is posted on every rank before the barrier ends, as rsend demands.
        unsafe {
            let mut request = mpi
                .irecv(output(&mut received), 9, c.int(), c.previous(), tag, c.comm)
                .expect("irecv");
            c.barrier();
            send(mpi, input(&values), 7, c.int(), c.next(), tag, c.comm).expect(name);
            mpi.wait(&mut request, status.as_ptr()).expect("wait");
            assert_eq!(request, mpi.request_null(), "{name}");
            assert_eq!(mpi.status_source(status.as_ptr()), c.previous(), "{name}");
            assert_eq!(mpi.status_tag(status.as_ptr()), tag, "{name}");
            assert_eq!(
                mpi.get_count(status.as_ptr(), c.int()),
                Ok(Some(7)),
                "{name}"
            );
            assert_eq!(mpi.test_cancelled(status.as_ptr()), Ok(false), "{name}");
        }
        let expected: Vec<i32> = (0..9)
            .map(|i| if i < 7 { 100 * c.previous() + i } else { -1 })
            .collect();
        assert_eq!(
            received.as_slice(),
            expected,
            "{name}: the message, and nothing behind it"
        );
    }
    let (buffer, size) = mpi.buffer_detach().expect("detach");
    assert_eq!((buffer, size), (attached.as_mut_ptr(), room));
}

fn immediate(c: &Context) {
    let mpi = c.mpi;
    let mut attached = vec![0u8; 4096 + mpi.constants().bsend_overhead as usize];
    // SAFETY:
    // - Every buffer is a local array as long as its count, and outlives its request.
    // - The attached buffer outlives the detach below.
    unsafe {
        mpi.buffer_attach(attached.as_mut_ptr(), attached.len() as i64)
            .expect("attach")
    };
    let sends: [(&str, Isend); 4] = [
        ("isend", Mpi::isend),
        ("issend", Mpi::issend),
        ("ibsend", Mpi::ibsend),
        ("irsend", Mpi::irsend),
    ];
    for (tag, (name, isend)) in sends.into_iter().enumerate() {
        let tag = 20 + tag as i32;
        let value = [1.5 * f64::from(c.rank + tag)];
        let mut received = [0.0f64];
        let double = c.datatype(Basic::Double);
        // SAFETY:
        // - As above; receives are posted before the barrier ends.
        unsafe {
            let receive = mpi
                .irecv(output(&mut received), 1, double, c.previous(), tag, c.comm)
                .expect("irecv");
            c.barrier();
            let send = isend(mpi, input(&value), 1, double, c.next(), tag, c.comm).expect(name);
            let mut both = [receive, send];
            mpi.waitall(&mut both, IGNORE).expect("waitall");
            assert_eq!(both, [mpi.request_null(); 2]);
        }
        assert_eq!(received[0], 1.5 * f64::from(c.previous() + tag), "{name}");
    }
    mpi.buffer_detach().expect("detach");
}

fn sendrecv(c: &Context) {
    let mpi = c.mpi;
    let mine = [c.rank, c.rank * c.rank];
    let mut theirs = [-1i32; 3];
    let mut status = StatusBuf::new();
    // SAFETY:
    // - Every buffer is a local array as long as its count.
    unsafe {
        mpi.sendrecv(
            input(&mine),
            2,
            c.int(),
            c.next(),
            30,
            output(&mut theirs),
            3,
            c.int(),
            c.previous(),
            30,
            c.comm,
            status.as_ptr(),
        )
        .expect("sendrecv");
        assert_eq!(mpi.get_count(status.as_ptr(), c.int()), Ok(Some(2)));
    }
    assert_eq!(theirs, [c.previous(), c.previous() * c.previous(), -1]);

    let mut both = [c.rank, 7];
    // SAFETY:
    // - The buffer is a local array as long as its count.
    unsafe {
        mpi.sendrecv_replace(
            output(&mut both),
            2,
            c.int(),
            c.next(),
            31,
            c.previous(),
            31,
            c.comm,
            status.as_ptr(),
        )
        .expect("sendrecv_replace");
        assert_eq!(mpi.status_source(status.as_ptr()), c.previous());
    }
    assert_eq!(both, [c.previous(), 7]);
}

fn probes(c: &Context) {
    let mpi = c.mpi;
    let tags = [40, 41, 42, 43];
    let values: Vec<i32> = (0..5).map(|i| c.rank + i).collect();
    let expected: Vec<i32> = (0..5).map(|i| c.previous() + i).collect();
    let mut status = StatusBuf::new();
    // SAFETY:
    // - Every buffer is a local array as long as its count, and outlives its request.
    // - Every matched message is received once.
    unsafe {
        let mut sends: Vec<Request> = tags
            .iter()
            .map(|tag| {
                mpi.isend(input(&values), 5, c.int(), c.next(), *tag, c.comm)
                    .expect("isend")
            })
            .collect();

        mpi.probe(c.previous(), 40, c.comm, status.as_ptr())
            .expect("probe");
        assert_eq!(mpi.get_count(status.as_ptr(), c.int()), Ok(Some(5)));
        assert_eq!(
            mpi.get_count(status.as_ptr(), c.datatype(Basic::Byte)),
            Ok(Some(20))
        );
        assert_eq!(mpi.get_elements(status.as_ptr(), c.int()), Ok(Some(5)));
        // 20 bytes are no whole number of 8-byte elements.
        assert_eq!(
            mpi.get_count(status.as_ptr(), c.datatype(Basic::Double)),
            Ok(None)
        );
        let mut received = [0i32; 5];
        mpi.recv(
            output(&mut received),
            5,
            c.int(),
            c.previous(),
            40,
            c.comm,
            IGNORE,
        )
        .expect("recv");
        assert_eq!(received.as_slice(), expected);

        while !mpi
            .iprobe(c.previous(), 41, c.comm, status.as_ptr())
            .expect("iprobe")
        {}
        assert_eq!(mpi.status_tag(status.as_ptr()), 41);
        mpi.recv(
            output(&mut received),
            5,
            c.int(),
            c.previous(),
            41,
            c.comm,
            IGNORE,
        )
        .expect("recv");
        assert_eq!(mpi.iprobe(c.previous(), 41, c.comm, IGNORE), Ok(false));

        received = [0; 5];
        let mut message = mpi
            .mprobe(c.previous(), 42, c.comm, status.as_ptr())
            .expect("mprobe");
        mpi.mrecv(
            output(&mut received),
            5,
            c.int(),
            &mut message,
            status.as_ptr(),
        )
        .expect("mrecv");
        assert_eq!(message, mpi.message_null());
        assert_eq!(mpi.get_count(status.as_ptr(), c.int()), Ok(Some(5)));
        assert_eq!(received.as_slice(), expected);

        received = [0; 5];
        let mut message = loop {
            if let Some(message) = mpi
                .improbe(c.previous(), 43, c.comm, IGNORE)
                .expect("improbe")
            {
                break message;
            }
        };
        let mut request = mpi
            .imrecv(output(&mut received), 5, c.int(), &mut message)
            .expect("imrecv");
        assert_eq!(message, mpi.message_null());
        mpi.wait(&mut request, status.as_ptr()).expect("wait");
        assert_eq!(received.as_slice(), expected);
        assert_eq!(mpi.improbe(c.previous(), 43, c.comm, IGNORE), Ok(None));

        mpi.waitall(&mut sends, IGNORE).expect("waitall");
    }
}

fn wildcards(c: &Context) {
    let (mpi, k) = (c.mpi, c.mpi.constants());
    let mut status = StatusBuf::new();
    let mut received = [0i32];
    // SAFETY:
    // - Every buffer is a local array as long as its count, and outlives its request.
    unsafe {
        let mut send = mpi
            .isend(input(&[c.rank]), 1, c.int(), c.next(), 50 + c.rank, c.comm)
            .expect("isend");
        mpi.recv(
            output(&mut received),
            1,
            c.int(),
            k.any_source,
            k.any_tag,
            c.comm,
            status.as_ptr(),
        )
        .expect("recv");
        mpi.wait(&mut send, IGNORE).expect("wait");
        assert_eq!(received, [c.previous()]);
        assert_eq!(mpi.status_source(status.as_ptr()), c.previous());
        assert_eq!(mpi.status_tag(status.as_ptr()), 50 + c.previous());

        // To and from no process: nothing is written, and the status says so.
        mpi.send(input(&[1i32]), 1, c.int(), k.proc_null, 0, c.comm)
            .expect("send");
        mpi.recv(
            output(&mut received),
            1,
            c.int(),
            k.proc_null,
            0,
            c.comm,
            status.as_ptr(),
        )
        .expect("recv");
        assert_eq!(received, [c.previous()]);
        assert_eq!(mpi.status_source(status.as_ptr()), k.proc_null);
        assert_eq!(mpi.status_tag(status.as_ptr()), k.any_tag);
        assert_eq!(mpi.get_count(status.as_ptr(), c.int()), Ok(Some(0)));
        let mut message = mpi.mprobe(k.proc_null, 0, c.comm, IGNORE).expect("mprobe");
        assert_eq!(message, mpi.message_no_proc());
        mpi.mrecv(output(&mut received), 1, c.int(), &mut message, IGNORE)
            .expect("mrecv");
    }
}
