//! How big and how plain a file is: lines, columns, functions, module doc, ASCII.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::BUDGETS;
use crate::finding::Finding;
use crate::source::Source;

/// Every broken size rule of the file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut refuse = |line, rule, text: String| {
        findings.push(Finding::new(&source.path, line, rule, text));
    };
    let lines = source.text.lines().count();
    if lines > BUDGETS.file_lines {
        refuse(0, "file-size", format!("{lines} lines; split at {}", BUDGETS.file_lines));
    }
    if !source.text.starts_with("//!") {
        refuse(1, "module-doc", "open the file with `//!`: what it is for and why".to_owned());
    }
    for (number, line) in (1..).zip(source.text.lines()) {
        if let Some(odd) = line.chars().find(|c| !c.is_ascii()) {
            refuse(number, "ascii", format!("{odd:?} is not ASCII; spell it"));
        }
        let columns = line.chars().count();
        if columns > BUDGETS.columns {
            refuse(number, "columns", format!("{columns} columns; break at {}", BUDGETS.columns));
        }
    }
    for (line, name, length) in functions(source) {
        if length > BUDGETS.function_lines {
            let text = format!("{name} has {length} lines; split at {}", BUDGETS.function_lines);
            refuse(line, "function-size", text);
        }
    }
    findings
}

/// Line, name and length of every function with a body, those in macros included.
pub(super) fn functions(source: &Source) -> Vec<(usize, String, usize)> {
    let mut finder = Functions::default();
    finder.visit_file(&source.tree);
    finder.found
}

/// Collects functions: from the tree, and from the tokens of macros.
#[derive(Debug, Default)]
struct Functions {
    found: Vec<(usize, String, usize)>,
}

impl Functions {
    fn note(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let start = signature.span().start().line;
        let end = body.brace_token.span.close().end().line;
        self.found.push((start, signature.ident.to_string(), end + 1 - start));
    }

    fn tokens(&mut self, stream: TokenStream) {
        // The function whose body has not come yet: its line and its name once known.
        let mut open: Option<(usize, String)> = None;
        for tree in stream {
            match tree {
                TokenTree::Ident(ident) if ident == "fn" => {
                    open = Some((ident.span().start().line, String::new()));
                }
                TokenTree::Ident(ident) => {
                    if let Some((_, name)) = open.as_mut().filter(|(_, name)| name.is_empty()) {
                        *name = ident.to_string();
                    }
                }
                TokenTree::Punct(mark) if mark.as_char() == ';' => open = None,
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Brace
                        && let Some((start, name)) = open.take()
                    {
                        let end = group.span_close().end().line;
                        self.found.push((start, name, end + 1 - start));
                    }
                    self.tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.note(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::super::at;
    use super::*;

    fn rules(text: &str) -> Vec<(usize, &'static str)> {
        let source = at("core/heap/src/x.rs", text);
        check(&source).iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    fn long(head: &str, body: usize) -> String {
        format!("//! x\n{head} {{\n{}}}\n", "    g();\n".repeat(body))
    }

    #[test]
    fn a_function_may_have_seventy_lines_and_no_more() {
        assert_eq!(rules(&long("fn f()", 68)), []);
        assert_eq!(rules(&long("fn f()", 69)), [(2, "function-size")]);
    }

    #[test]
    fn functions_in_impls_traits_and_macros_count_too() {
        let body = long("fn f()", 69).split_off("//! x\n".len());
        for (head, tail) in [
            ("impl S {", "}"),
            ("trait T {", "}"),
            ("macro_rules! m { () => {", "} }"),
            ("proptest! {", "}"),
            ("fn outer() { once! { ", "} }"),
        ] {
            let found = rules(&format!("//! x\n{head}\n{body}{tail}\n"));
            assert!(found.contains(&(3, "function-size")), "{head}: {found:?}");
        }
    }

    #[test]
    fn a_function_pointer_is_not_a_function() {
        let source = at("core/heap/src/x.rs", "macro_rules! m { () => { type F = fn(u8); f!{} } }");
        assert_eq!(functions(&source).len(), 0);
    }

    #[test]
    fn files_have_a_size_a_doc_and_ascii_lines_of_a_hundred_columns() {
        assert_eq!(rules(&format!("//! x\n{}", "\n".repeat(799))), []);
        assert_eq!(rules(&format!("//! x\n{}", "\n".repeat(800))), [(0, "file-size")]);
        assert_eq!(rules("fn f() {}\n"), [(1, "module-doc")]);
        assert_eq!(rules("//! \u{b7}\n"), [(1, "ascii")]);
        assert_eq!(rules(&format!("//! x\n// {}\n", "x".repeat(97))), []);
        assert_eq!(rules(&format!("//! x\n// {}\n", "x".repeat(98))), [(2, "columns")]);
    }
}
