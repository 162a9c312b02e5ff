//! The code the derive writes.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Generics, parse_quote};

use crate::input::{Field, Input};

/// Bytes objects are aligned to in a pool; no stored type may ask for more.
const ALIGN_MAX: usize = 64;

/// The impls and the assertions they rest on.
pub(crate) fn emit(input: &Input) -> TokenStream {
    let Input { ident, name, version, home, .. } = input;
    let generics = bounded(input);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let fields = input.fields.iter().map(|Field { member, name, of }| {
        // The bound on the field is reported at the field.
        let number = quote_spanned!(of.span()=> <#of as #home::Persist>::TYPE);
        quote!(.field(#name, ::core::mem::offset_of!(Self, #member), #number))
    });
    let layout = layout(input);
    quote! {
        // SAFETY: every field is `Persist` (its `TYPE` is used below), so zero is a value of it.
        #[automatically_derived]
        unsafe impl #impl_generics #home::bytemuck::Zeroable
            for #ident #type_generics #where_clause {}

        // SAFETY: every field is `Persist`, hence plain data; there is no padding, by the
        // assertion on sizes or because the struct is transparent.
        #[automatically_derived]
        unsafe impl #impl_generics #home::bytemuck::Pod for #ident #type_generics #where_clause {}

        // SAFETY: the representation is fixed (checked on the attributes), every field `Persist`.
        #[automatically_derived]
        unsafe impl #impl_generics #home::Persist for #ident #type_generics #where_clause {
            const TYPE: #home::TypeNumber =
                #home::TypeNumber::start(#name, #version) #(#fields)* .end();
        }

        #layout
    }
}

/// Generics of the impls: every field of a generic struct must be storable.
fn bounded(input: &Input) -> Generics {
    let mut generics = input.generics.clone();
    if !generics.params.is_empty() {
        let home = &input.home;
        let clause = generics.make_where_clause();
        for Field { of, .. } in &input.fields {
            clause.predicates.push(parse_quote!(#of: #home::Persist));
        }
    }
    generics
}

/// Assertions on what only the compiler knows. A generic struct is transparent: its one field,
/// being `Persist`, has passed them already or is a primitive.
fn layout(input: &Input) -> TokenStream {
    if !input.generics.params.is_empty() {
        return TokenStream::new();
    }
    let ident = &input.ident;
    let types = input.fields.iter().map(|f| &f.of);
    let padding = format!(
        "`{ident}` has padding, whose bytes would be written uninitialised: order fields from \
         large to small, or fill gaps with fields of your own such as `_gap: [u8; 4]`"
    );
    let align = format!("`{ident}` asks for an alignment of more than {ALIGN_MAX} bytes");
    quote_spanned! {ident.span()=>
        const _: () = {
            ::core::assert!(
                ::core::mem::size_of::<#ident>() == #(::core::mem::size_of::<#types>())+*,
                #padding
            );
            ::core::assert!(::core::mem::align_of::<#ident>() <= #ALIGN_MAX, #align);
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(item: syn::DeriveInput, home: &str) -> String {
        emit(&Input::read(item, home).expect("accepted")).to_string().replace(' ', "")
    }

    #[test]
    fn every_path_starts_at_the_home() {
        let plain: syn::DeriveInput = parse_quote! { #[repr(C)] struct A { word: u64 } };
        for home in ["::holdfast_layout", "::holdfast::layout"] {
            let text = code(plain.clone(), home);
            for name in ["bytemuck::Zeroable", "bytemuck::Pod", "Persist", "TypeNumber"] {
                assert!(text.contains(&format!("{home}::{name}")), "{name} in {text}");
            }
        }
        let moved: syn::DeriveInput = parse_quote! {
            #[repr(C)] #[persist(crate = "crate::inner")] struct A { word: u64 }
        };
        let text = code(moved, "::holdfast_layout");
        assert!(text.contains("crate::inner::Persist") && !text.contains("holdfast"), "{text}");
    }

    #[test]
    fn every_field_is_in_the_assertion_and_the_number() {
        let item = parse_quote! { #[repr(C)] struct A { first: u64, second: [u8; 8] } };
        let text = code(item, "::h");
        assert!(text.contains("size_of::<u64>()+::core::mem::size_of::<[u8;8]>()"), "{text}");
        for (name, of) in [("first", "u64"), ("second", "[u8;8]")] {
            let field = format!(
                ".field(\"{name}\",::core::mem::offset_of!(Self,{name}),<{of}as::h::Persist>::TYPE)"
            );
            assert!(text.contains(&field), "{field} in {text}");
        }
    }

    #[test]
    fn a_generic_struct_is_bounded_by_its_fields() {
        let item = parse_quote! { #[repr(transparent)] struct A<T>(T); };
        let text = code(item, "::h");
        assert!(
            text.contains("unsafeimpl<T>::h::bytemuck::PodforA<T>whereT:::h::Persist"),
            "{text}"
        );
    }
}
