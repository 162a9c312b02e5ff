//! Derive macro for plain persistent data.
//!
//! # Guarantee
//!
//! A type that gets through `#[derive(Persist)]` has the same bytes in every build, no byte of it
//! is padding, and every bit pattern is a value of it, so that bytes which come back from a
//! medium, rotten or not, can be looked at. What does not qualify is refused while compiling:
//! enums, unions, types without `repr(C)` or `repr(transparent)`, padding, and fields that are
//! not plain data themselves (`bool`, `char`, `usize`, references, raw pointers, `Box`, ...).
//!
//! Not covered: what the numbers mean. A count read back may be anything; whoever uses it as an
//! index has to bound it.
//!
//! # Picture
//!
//! ```text
//!  #[derive(Clone, Copy, Persist)]        unsafe impl Zeroable for Account {}
//!  #[repr(C)]                             unsafe impl Pod for Account {}
//!  struct Account {                 -->   unsafe impl Persist for Account {
//!      balance: i64,                          const TYPE = hash(name, version, fields)
//!      next: Ptr<Account>,                }
//!  }                                      const _: () = assert!(no padding, alignment);
//! ```
//!
//! # Vocabulary
//!
//! *type number*: 32 bits that name a type and its layout; stored with every object. *home*: the
//! crate whose path the generated code uses to reach the trait.
//!
//! # Life of one derive
//!
//! Input is parsed and judged (`input.rs`), then written out (`emit.rs`). What only the compiler
//! knows, sizes and which traits a field's type has, is left to constants and bounds in the
//! generated code. No medium is involved, hence no fence.
//!
//! # Tour
//!
//! `input.rs` what is accepted, and the messages for what is not; `emit.rs` the generated code.

#![forbid(unsafe_code)]

mod emit;
mod input;

use proc_macro::TokenStream;

/// Makes a struct storable in a pool: implements `Zeroable`, `Pod` and `Persist` for it.
///
/// ```text
/// #[derive(Clone, Copy, Persist)]
/// #[repr(C)]
/// struct Account {
///     balance: i64,
///     next: Ptr<Account>,
/// }
/// ```
///
/// Attributes, in `#[persist(...)]` on the struct:
///
/// - `name = "..."`: the name that goes into the type number; the struct's own if absent. Give it
///   to keep the number when the struct is renamed.
/// - `version = N`: goes into the type number too; 1 if absent. Raise it when the meaning of a
///   field changes but its layout does not.
/// - `crate = "path"`: where `holdfast-layout` is, if it is not at `::holdfast_layout`.
#[proc_macro_derive(Persist, attributes(persist))]
pub fn persist(item: TokenStream) -> TokenStream {
    derive(item, "::holdfast_layout")
}

/// The same derive for crates that depend on the `holdfast` crate alone: the generated code goes
/// through `::holdfast::layout`. `holdfast` re-exports it under the name `Persist`.
#[proc_macro_derive(PersistFacade, attributes(persist))]
pub fn persist_facade(item: TokenStream) -> TokenStream {
    derive(item, "::holdfast::layout")
}

fn derive(item: TokenStream, home: &str) -> TokenStream {
    let parsed = syn::parse::<syn::DeriveInput>(item).and_then(|i| input::Input::read(i, home));
    match parsed {
        Ok(input) => emit::emit(&input),
        Err(error) => error.to_compile_error(),
    }
    .into()
}
