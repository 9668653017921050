//! Tensors laid end to end in scratch memory for as long as a reduction takes.

use dlpack_core::View;

use super::list::{Tensor, Tensors};
use crate::copying::copy;
use crate::error::Result;
use crate::host::Host;
use crate::pack::{pack, unpack};
use crate::scratch::Scratch;

/// Tensors and where they lie meanwhile.
pub(super) struct Packed<'a> {
    pub room: Scratch,
    /// In the order of the tensors.
    pub places: Vec<Place<'a>>,
    /// Of those that keep a view.
    hosts: Vec<Host>,
}

/// One of them.
pub(super) struct Place<'a> {
    pub at: *mut u8,
    tensor: &'a Tensor,
    view: Option<&'a View>,
}

impl<'a> Packed<'a> {
    /// All of the tensors, or those alone that do not lie flat in host memory.
    ///
    /// # Errors
    /// [`crate::Error::Memory`] where there is none; what a device's driver reports.
    pub fn of(list: &'a Tensors, tensors: &'a [Tensor], all: bool) -> Result<Packed<'a>> {
        let wanted = || {
            let viewed = tensors.iter().map(|tensor| (tensor, list.view(tensor)));
            viewed.filter(|(_, view)| all || view.is_some())
        };
        let room = Scratch::new(wanted().map(|(tensor, _)| tensor.bytes()).sum())?;
        let mut at = room.ptr();
        let places = wanted().map(|(tensor, view)| {
            let place = Place { at, tensor, view };
            at = at.wrapping_add(tensor.bytes());
            place
        });
        let places: Vec<Place<'a>> = places.collect();
        let views: Vec<&View> = places.iter().filter_map(|place| place.view).collect();
        let packed = Packed {
            hosts: Host::of_all(&views)?,
            places,
            room,
        };
        packed.each(|place, host| {
            // SAFETY:
            // - the door checked the layout, and the caller of the reduction holds the memory; a tensor without a view
            //   is flat.
            // - the scratch memory has room for all of them, and is none of them.
            unsafe {
                match host {
                    Some((view, host)) => {
                        pack(view.layout(), host.data(), 0, view.numel(), place.at);
                    }
                    None => {
                        let bytes = place.tensor.bytes();
                        copy(place.tensor.data, place.at, bytes);
                    }
                }
            }
        });
        Ok(packed)
    }

    /// Brings results to the tensors.
    ///
    /// # Errors
    /// What a device's driver reports.
    pub fn bring_home(&self) -> Result<()> {
        self.each(|place, host| {
            // SAFETY:
            // - the place holds the tensor's elements; it is writable and shares memory with no other (`check`).
            unsafe {
                match host {
                    Some((view, host)) => {
                        unpack(view.layout(), host.data(), 0, view.numel(), place.at);
                    }
                    None => {
                        let bytes = place.tensor.bytes();
                        copy(place.at, place.tensor.data, bytes);
                    }
                }
            }
        });
        let views = self.places.iter().filter_map(|place| place.view);
        Host::commit_all(views.zip(&self.hosts))
    }

    /// Calls `work` for each tensor, and with the host memory of one that keeps a view.
    fn each(&self, mut work: impl FnMut(&Place<'a>, Option<(&View, &Host)>)) {
        let mut hosts = self.hosts.iter();
        for place in &self.places {
            let host = place.view.and_then(|view| Some((view, hosts.next()?)));
            work(place, host);
        }
    }
}
