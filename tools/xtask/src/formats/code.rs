//! Reads the `FIELDS_*` lists of `format.rs` files: literals and simple constant expressions.

use std::collections::BTreeMap;

use syn::spanned::Spanned;

use super::{Field, RULE, Structure};
use crate::finding::Finding;
use crate::source::Source;

/// What the name of a list starts with.
const PREFIX: &str = "FIELDS_";

/// Constants may be built on constants, this deep.
const DEPTH: usize = 16;

/// Values of constants: their expressions, by name.
type Constants<'a> = BTreeMap<String, &'a syn::Expr>;

/// Every structure of the files; what cannot be read becomes a finding.
pub(super) fn structures(sources: &[Source], findings: &mut Vec<Finding>) -> Vec<Structure> {
    let mut found = Vec::new();
    for source in sources {
        let Some((_, room)) = source.room() else { continue };
        let constants = constants(source);
        let before = found.len();
        for item in &source.tree.items {
            let Some((name, line, value)) = list(item) else { continue };
            match fields(value, &constants) {
                Ok(fields) => {
                    let (key, path) = ((room.to_owned(), name), source.path.clone());
                    found.push(Structure { key, path, line, fields });
                }
                Err((line, text)) => {
                    let text = format!("{PREFIX}{name}: {text}");
                    findings.push(Finding::new(&source.path, line, RULE, text));
                }
            }
        }
        if found.len() == before {
            let text =
                format!("no `pub const {PREFIX}NAME: &[Field]`: list the fields of each structure");
            findings.push(Finding::new(&source.path, 0, RULE, text));
        }
    }
    found
}

/// Name, line and value of an item that is a list of fields.
fn list(item: &syn::Item) -> Option<(String, usize, &syn::Expr)> {
    let (ident, value) = match item {
        syn::Item::Const(item) => (&item.ident, &item.expr),
        syn::Item::Static(item) => (&item.ident, &item.expr),
        _ => return None,
    };
    let name = ident.to_string().strip_prefix(PREFIX)?.to_owned();
    Some((name, ident.span().start().line, value))
}

/// The constants of a file, at its top level.
fn constants(source: &Source) -> Constants<'_> {
    let items = source.tree.items.iter();
    items
        .filter_map(|item| match item {
            syn::Item::Const(item) => Some((item.ident.to_string(), item.expr.as_ref())),
            _ => None,
        })
        .collect()
}

/// What could not be read, and where.
type Unread = (usize, String);

fn unread<T>(at: &impl Spanned, text: impl Into<String>) -> Result<T, Unread> {
    Err((at.span().start().line, text.into()))
}

/// The fields of a list: `&[Field::new(...), ...]`, with or without the `&`.
fn fields(value: &syn::Expr, constants: &Constants<'_>) -> Result<Vec<Field>, Unread> {
    match value {
        syn::Expr::Reference(reference) => fields(&reference.expr, constants),
        syn::Expr::Array(array) => {
            array.elems.iter().map(|element| field(element, constants)).collect()
        }
        other => unread(other, "write `&[Field::new(\"name\", offset, size), ...]`"),
    }
}

/// One `Field::new("name", offset, size)`.
fn field(value: &syn::Expr, constants: &Constants<'_>) -> Result<Field, Unread> {
    let usage = "write Field::new(\"name\", offset, size)";
    let syn::Expr::Call(call) = value else { return unread(value, usage) };
    let path: Vec<String> = match call.func.as_ref() {
        syn::Expr::Path(path) => {
            path.path.segments.iter().map(|segment| segment.ident.to_string()).collect()
        }
        _ => Vec::new(),
    };
    let mut arguments = call.args.iter();
    match (path.as_slice(), arguments.next(), arguments.next(), arguments.next()) {
        ([.., field, new], Some(name), Some(at), Some(len)) if field == "Field" && new == "new" => {
            let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(name), .. }) = name else {
                return unread(name, "the name is a literal");
            };
            let at = number(at, constants, DEPTH)?;
            let len = number(len, constants, DEPTH)?;
            Ok(Field { name: name.value(), at, len })
        }
        _ => unread(value, usage),
    }
}

/// The value of a constant expression: integers, `+ - * / <<`, casts, constants of the file.
fn number(value: &syn::Expr, constants: &Constants<'_>, depth: usize) -> Result<u64, Unread> {
    let Some(depth) = depth.checked_sub(1) else {
        return unread(value, "constants built on constants too deep, or in a circle");
    };
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(int), .. }) => {
            int.base10_parse().or_else(|error| unread(value, error.to_string()))
        }
        syn::Expr::Paren(inner) => number(&inner.expr, constants, depth),
        syn::Expr::Group(inner) => number(&inner.expr, constants, depth),
        syn::Expr::Cast(cast) => number(&cast.expr, constants, depth),
        syn::Expr::Binary(binary) => {
            let left = number(&binary.left, constants, depth)?;
            let right = number(&binary.right, constants, depth)?;
            let result = match binary.op {
                syn::BinOp::Add(_) => left.checked_add(right),
                syn::BinOp::Sub(_) => left.checked_sub(right),
                syn::BinOp::Mul(_) => left.checked_mul(right),
                syn::BinOp::Div(_) => left.checked_div(right),
                syn::BinOp::Shl(_) => u32::try_from(right)
                    .ok()
                    .and_then(|right| 1u64.checked_shl(right))
                    .and_then(|power| left.checked_mul(power)),
                _ => return unread(value, "only + - * / << are read here"),
            };
            result.map_or_else(|| unread(value, "the value does not fit 64 bits"), Ok)
        }
        syn::Expr::Path(path) => {
            let name = path.path.get_ident().map(ToString::to_string).unwrap_or_default();
            match constants.get(&name) {
                Some(value) => number(value, constants, depth),
                None => {
                    unread(value, "only constants of this file are read here; write the number")
                }
            }
        }
        other => unread(other, "write a number, a constant of this file, or + - * / << of them"),
    }
}
