//! What the derive accepts, and the messages for what it does not.

use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Fields, GenericParam, Generics, Ident, LitInt, LitStr,
    Member, Path, Result, Type, parenthesized,
};

/// A struct that may be storable; its field types are still to be judged by the compiler.
pub(crate) struct Input {
    /// Name of the struct in the program.
    pub(crate) ident: Ident,
    /// Name in the type number.
    pub(crate) name: String,
    /// Version in the type number.
    pub(crate) version: u32,
    /// Path to the crate with the trait.
    pub(crate) home: Path,
    /// Generic parameters, not empty only for transparent structs.
    pub(crate) generics: Generics,
    /// Fields in order of declaration.
    pub(crate) fields: Vec<Field>,
}

/// One field.
pub(crate) struct Field {
    /// How the program names it.
    pub(crate) member: Member,
    /// How the type number names it.
    pub(crate) name: String,
    /// Its type.
    pub(crate) of: Type,
}

/// What `#[repr(...)]` says, as far as it matters here.
#[derive(Default)]
struct Repr {
    c: bool,
    transparent: bool,
}

/// What `#[persist(...)]` says.
#[derive(Default)]
struct Options {
    name: Option<LitStr>,
    version: Option<LitInt>,
    home: Option<LitStr>,
}

impl Input {
    /// Judges a parsed item; `home` is where the trait is unless the item says otherwise.
    pub(crate) fn read(item: DeriveInput, home: &str) -> Result<Self> {
        let fields = fields(&item)?;
        let repr = Repr::read(&item.attrs)?;
        if !repr.c && !repr.transparent {
            return Err(Error::new(
                item.ident.span(),
                format!(
                    "`{}` has no fixed layout: the compiler may order its fields anew in each \
                     build; add `#[repr(C)]`",
                    item.ident
                ),
            ));
        }
        check_generics(&item.generics, &repr)?;
        let options = Options::read(&item.attrs)?;
        let name = options.name.map_or_else(|| item.ident.unraw().to_string(), |n| n.value());
        let version = options.version.map_or(Ok(1), |v| v.base10_parse())?;
        let home = match options.home {
            Some(path) => path.parse()?,
            None => syn::parse_str(home)?,
        };
        Ok(Self { ident: item.ident, name, version, home, generics: item.generics, fields })
    }
}

impl Repr {
    fn read(attributes: &[Attribute]) -> Result<Self> {
        let mut repr = Self::default();
        for attribute in attributes.iter().filter(|a| a.path().is_ident("repr")) {
            attribute.parse_nested_meta(|meta| {
                repr.c |= meta.path.is_ident("C");
                repr.transparent |= meta.path.is_ident("transparent");
                if meta.input.peek(syn::token::Paren) {
                    // `packed(2)`, `align(16)`: what they do to the layout, sizes will tell.
                    let inside;
                    parenthesized!(inside in meta.input);
                    inside.parse::<LitInt>()?;
                }
                Ok(())
            })?;
        }
        Ok(repr)
    }
}

impl Options {
    fn read(attributes: &[Attribute]) -> Result<Self> {
        let mut options = Self::default();
        for attribute in attributes.iter().filter(|a| a.path().is_ident("persist")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    options.name = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("version") {
                    options.version = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("crate") {
                    options.home = Some(meta.value()?.parse()?);
                } else {
                    return Err(meta.error("expected `name`, `version` or `crate`"));
                }
                Ok(())
            })?;
        }
        Ok(options)
    }
}

fn fields(item: &DeriveInput) -> Result<Vec<Field>> {
    let refuse = |text: &str| Err(Error::new(item.ident.span(), text));
    let data = match &item.data {
        Data::Struct(data) => data,
        Data::Enum(_) => {
            return refuse(
                "an enum cannot be stored: damaged bytes may hold none of its variants; store \
                 an integer and match on it",
            );
        }
        Data::Union(_) => {
            return refuse(
                "a union cannot be stored: bytes of unused variants are not initialised",
            );
        }
    };
    if matches!(data.fields, Fields::Unit) || data.fields.is_empty() {
        return refuse("a struct without fields has nothing to store");
    }
    let fields = data.fields.iter().zip(data.fields.members()).map(|(field, member)| {
        let name = match &member {
            Member::Named(ident) => ident.unraw().to_string(),
            Member::Unnamed(index) => index.index.to_string(),
        };
        Field { member, name, of: field.ty.clone() }
    });
    Ok(fields.collect())
}

/// Padding of a generic struct depends on its parameters, and is not known before they are: only
/// a transparent one cannot have any.
fn check_generics(generics: &Generics, repr: &Repr) -> Result<()> {
    for parameter in &generics.params {
        if let GenericParam::Lifetime(lifetime) = parameter {
            let text = "a lifetime ends with the process, stored data does not; store a `Ptr`";
            return Err(Error::new(lifetime.span(), text));
        }
        if !repr.transparent {
            let text = "whether a generic struct has padding depends on its parameters; make it \
                        `#[repr(transparent)]` around one field, or write one struct per use";
            return Err(Error::new(parameter.span(), text));
        }
    }
    Ok(())
}
