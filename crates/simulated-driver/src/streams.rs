//! Streams and events by their handles.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::thread;

use crate::schedule::{Point, Stream, StreamId, Work, finish, has_run, made, nudge, put};
use crate::state::{CHANGED, CURRENT, Guard, Needs, State, enter};
use crate::{CAPTURE_IMPLICIT, CAPTURE_UNSUPPORTED, INVALID_HANDLE, INVALID_VALUE, NOT_READY, OK};

const NON_BLOCKING: c_uint = 1;
const RELAXED: c_int = 2;

thread_local! {
    /// The capture mode of this thread; at first the global one.
    static MODE: Cell<c_int> = const { Cell::new(0) };
}

/// Whether this thread may not make calls that could disturb a capture, of which cuda.h gives no list: those that wait,
/// ask, or allocate for the host.
pub(crate) fn forbidden(state: &State) -> bool {
    MODE.get() != RELAXED && state.streams.values().any(|stream| stream.capturing)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_uint {
    enter("cuThreadExchangeStreamCaptureMode", Needs::Driver, |_| {
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *mode = MODE.replace(*mode) };
        OK
    })
}

/// The stream of a handle, if it belongs to the context that is current; default streams come into being here.
pub(crate) fn of(state: &mut State, handle: *mut c_void) -> Option<StreamId> {
    state.note(format_args!("stream={:#x}", handle.addr()));
    let context = CURRENT.get();
    let id = match handle.addr() {
        _ if context == 0 => return None,
        0 | 1 => StreamId::Legacy(context),
        2 => StreamId::PerThread(context, thread::current().id()),
        made => {
            let stream = state.streams.get(&StreamId::Made(made))?;
            let usable = stream.context == context && !stream.destroyed;
            return usable.then_some(StreamId::Made(made));
        }
    };
    state.streams.entry(id).or_insert_with(|| {
        made(id);
        Stream::new(context, true)
    });
    Some(id)
}

pub(crate) fn queue(mut state: Guard, stream: *mut c_void, work: Work) -> c_uint {
    match of(&mut state, stream) {
        Some(id) => {
            state.note(format_args!("bytes={}", work.bytes()));
            if let Work::Copy { to, from, .. } = work {
                state.note(format_args!("to={to:#x} from={from:#x}"));
            }
            drop(put(state, id, work, Vec::new()));
            OK
        }
        None => INVALID_HANDLE,
    }
}

/// What an event was last recorded behind, if there is such an event.
fn recorded(state: &mut State, event: *mut c_void) -> Option<Option<Point>> {
    state.note(format_args!("event={:#x}", event.addr()));
    state.events.get(&event.addr()).copied()
}

fn handle(state: &mut State) -> usize {
    state.handles += 1;
    0x5000 + 0x10 * state.handles
}

fn capturing(state: &State, id: StreamId) -> bool {
    state
        .streams
        .get(&id)
        .is_some_and(|stream| stream.capturing)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, flags: c_uint) -> c_uint {
    enter("cuStreamCreate", Needs::Context, |mut state| {
        let made = handle(&mut state);
        let id = StreamId::Made(made);
        let blocking = flags & NON_BLOCKING == 0;
        state
            .streams
            .insert(id, Stream::new(CURRENT.get(), blocking));
        crate::schedule::made(id);
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *stream = ptr::without_provenance_mut(made) };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> c_uint {
    enter("cuStreamDestroy", Needs::Context, |mut state| {
        let Some(id @ StreamId::Made(_)) = of(&mut state, stream) else {
            return INVALID_HANDLE;
        };
        // What is queued still runs, when somebody waits for it.
        if let Some(stream) = state.streams.get_mut(&id) {
            stream.destroyed = true;
        }
        (state.streams).retain(|_, stream| !stream.destroyed || !stream.queue.is_empty());
        CHANGED.notify_all();
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> c_uint {
    enter("cuStreamSynchronize", Needs::Context, |mut state| {
        let Some(id) = of(&mut state, stream) else {
            return INVALID_HANDLE;
        };
        if forbidden(&state) || capturing(&state, id) {
            return CAPTURE_UNSUPPORTED;
        }
        // The legacy stream joins blocking ones where work is queued on it; nothing says that a wait for it does.
        let last = state.streams.get(&id).map_or(0, |stream| stream.last);
        drop(finish(state, (id, last)));
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: *mut c_void) -> c_uint {
    enter("cuStreamQuery", Needs::Context, |mut state| {
        let Some(id) = of(&mut state, stream) else {
            return INVALID_HANDLE;
        };
        let last = state.streams.get(&id).map_or(0, |stream| stream.last);
        answer(state, (id, last))
    })
}

/// How far a stream is; asking moves it on.
fn answer(state: Guard, point: Point) -> c_uint {
    if has_run(&state, point) {
        return OK;
    }
    drop(nudge(state, point.0));
    NOT_READY
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: *mut c_void, status: *mut c_int) -> c_uint {
    enter("cuStreamIsCapturing", Needs::Context, |mut state| {
        let Some(id) = of(&mut state, stream) else {
            return INVALID_HANDLE;
        };
        let mut others = state.streams.values();
        // The legacy stream cannot be asked while another stream is captured.
        if matches!(id, StreamId::Legacy(_)) && others.any(|stream| stream.capturing) {
            return CAPTURE_IMPLICIT;
        }
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *status = c_int::from(capturing(&state, id)) };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(
    stream: *mut c_void,
    event: *mut c_void,
    flags: c_uint,
) -> c_uint {
    enter("cuStreamWaitEvent", Needs::Context, |mut state| {
        let Some(id) = of(&mut state, stream) else {
            return INVALID_HANDLE;
        };
        match recorded(&mut state, event) {
            _ if flags != 0 => INVALID_VALUE,
            None => INVALID_HANDLE,
            // An event that was never recorded is no reason to wait.
            Some(None) => OK,
            Some(Some(point)) => {
                drop(put(state, id, Work::Nothing, vec![point]));
                OK
            }
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) -> c_uint {
    enter("cuEventCreate", Needs::Context, |mut state| {
        let made = handle(&mut state);
        state.events.insert(made, None);
        // SAFETY:
        // - The caller passes a valid pointer, as cuda.h asks.
        unsafe { *event = ptr::without_provenance_mut(made) };
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: *mut c_void, stream: *mut c_void) -> c_uint {
    enter("cuEventRecord", Needs::Context, |mut state| {
        let Some(id) = of(&mut state, stream) else {
            return INVALID_HANDLE;
        };
        if recorded(&mut state, event).is_none() {
            return INVALID_HANDLE;
        }
        let mut state = put(state, id, Work::Nothing, Vec::new());
        let last = state.streams.get(&id).map_or(0, |stream| stream.last);
        state.events.insert(event.addr(), Some((id, last)));
        OK
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(event: *mut c_void) -> c_uint {
    enter(
        "cuEventSynchronize",
        Needs::Driver,
        |mut state| match recorded(&mut state, event) {
            _ if forbidden(&state) => CAPTURE_UNSUPPORTED,
            None => INVALID_HANDLE,
            Some(None) => OK,
            Some(Some(point)) => {
                drop(finish(state, point));
                OK
            }
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: *mut c_void) -> c_uint {
    enter("cuEventQuery", Needs::Driver, |mut state| {
        match recorded(&mut state, event) {
            _ if forbidden(&state) => CAPTURE_UNSUPPORTED,
            None => INVALID_HANDLE,
            Some(None) => OK,
            Some(Some(point)) => answer(state, point),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> c_uint {
    enter("cuEventDestroy", Needs::Driver, |mut state| {
        match state.events.remove(&event.addr()) {
            Some(_) => OK,
            None => INVALID_HANDLE,
        }
    })
}
