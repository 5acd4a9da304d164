//! The modules of a crate, by its source: which file defines which name, and which paths each file takes.
//!
//! Only what a reader of `use` lines and paths sees is read: a method found through a type is no path.
//! What stands under `#[cfg(test)]` is left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// What a name stands for in a module.
#[derive(Debug, Clone)]
pub(super) enum Named {
    /// An item of the module itself.
    Item,
    /// A module below it, by its place in [`Modules::all`].
    Module(usize),
    /// A path that a `use` line gave the name to.
    Import(Vec<String>),
}

/// One module.
#[derive(Debug)]
pub(super) struct Module {
    /// Its file, by its place in [`Modules::files`].
    pub(super) file: usize,
    parent: Option<usize>,
    names: BTreeMap<String, Vec<Named>>,
    globs: Vec<Vec<String>>,
    /// The paths that its code takes, `use` lines included, in its own terms.
    pub(super) paths: Vec<Vec<String>>,
}

/// The modules of one crate.
#[derive(Debug, Default)]
pub(super) struct Modules {
    /// Every file, below the folder of the crate's sources.
    pub(super) files: Vec<PathBuf>,
    /// Every module; the crate's root is the first.
    pub(super) all: Vec<Module>,
}

impl Modules {
    /// Reads a crate from its root file.
    ///
    /// Errors: a file cannot be read, or is not Rust.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut modules = Self::default();
        let folder = root
            .parent()
            .context("the root of a crate lies in a folder")?;
        modules.read_file(folder, root, None)?;
        Ok(modules)
    }

    fn read_file(&mut self, folder: &Path, path: &Path, parent: Option<usize>) -> Result<usize> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        let parsed =
            syn::parse_file(&text).with_context(|| format!("{} is not Rust", path.display()))?;
        let shown = path.strip_prefix(folder).unwrap_or(path);
        self.files.push(shown.to_owned());
        let file = self.files.len() - 1;
        // The folder of the modules that this file declares.
        let stem = path.file_stem().unwrap_or_default();
        let beside = path.parent().unwrap_or(folder);
        let below = if parent.is_none() || stem == "mod" {
            beside.to_owned()
        } else {
            beside.join(stem)
        };
        self.read_items(folder, &below, &parsed.items, file, parent)
    }

    fn read_items(
        &mut self,
        folder: &Path,
        below: &Path,
        items: &[Item],
        file: usize,
        parent: Option<usize>,
    ) -> Result<usize> {
        let index = self.all.len();
        self.all.push(Module {
            file,
            parent,
            names: BTreeMap::new(),
            globs: Vec::new(),
            paths: Vec::new(),
        });
        for item in items {
            if let Item::Mod(module) = item {
                if is_for_tests(&module.attrs) {
                    continue;
                }
                let name = module.ident.to_string();
                let inner = match &module.content {
                    Some((_, items)) => {
                        self.read_items(folder, &below.join(&name), items, file, Some(index))?
                    }
                    None => {
                        let plain = below.join(format!("{name}.rs"));
                        let path = if plain.exists() {
                            plain
                        } else {
                            below.join(&name).join("mod.rs")
                        };
                        self.read_file(folder, &path, Some(index))?
                    }
                };
                self.all[index].name(name, Named::Module(inner));
            } else {
                let mut reader = Reader {
                    module: &mut self.all[index],
                };
                reader.visit_item(item);
                if let Some(name) = name_of(item) {
                    self.all[index].name(name, Named::Item);
                }
            }
        }
        Ok(index)
    }

    /// The files that define what a path in a module names; none where that is no item of this crate.
    pub(super) fn files_of(&self, module: usize, path: &[String]) -> Vec<usize> {
        self.resolve(module, path, (0, false))
    }

    /// `entered` is whether the path names this module: then a name that nothing here defines is made by a
    /// macro of it.
    fn resolve(
        &self,
        module: usize,
        path: &[String],
        (depth, entered): (usize, bool),
    ) -> Vec<usize> {
        // Imports of each other in a circle, or of themselves, end nowhere.
        if depth > 16 {
            return Vec::new();
        }
        let Some((first, rest)) = path.split_first() else {
            return Vec::new();
        };
        match first.as_str() {
            "crate" => return self.resolve(0, rest, (depth + 1, true)),
            "self" => return self.resolve(module, rest, (depth + 1, true)),
            "super" => {
                let parent = self.all[module].parent;
                return parent
                    .map_or_else(Vec::new, |up| self.resolve(up, rest, (depth + 1, true)));
            }
            _ => {}
        }
        let known = self.all[module].names.get(first);
        let mut found = Vec::new();
        // Of a module and a function of one name, a path that goes on means the module.
        let is_module = |named: &&Named| matches!(named, Named::Module(_));
        let only_modules =
            !rest.is_empty() && known.into_iter().flatten().any(|named| is_module(&named));
        for named in known.into_iter().flatten() {
            match named {
                Named::Item | Named::Import(_) if only_modules => {}
                Named::Item => found.push(self.all[module].file),
                Named::Module(inner) => found.extend(self.resolve(*inner, rest, (depth + 1, true))),
                Named::Import(target) if target.first() != Some(first) || target.len() > 1 => {
                    let whole = [target.as_slice(), rest].concat();
                    found.extend(self.resolve(module, &whole, (depth + 1, false)));
                }
                Named::Import(_) => {}
            }
        }
        if known.is_none() {
            for glob in &self.all[module].globs {
                let whole = [glob.as_slice(), path].concat();
                found.extend(self.resolve(module, &whole, (depth + 1, false)));
            }
        }
        if known.is_none() && found.is_empty() && entered {
            found.push(self.all[module].file);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl Module {
    fn name(&mut self, name: String, stands_for: Named) {
        self.names.entry(name).or_default().push(stands_for);
    }

    /// Takes up the names of a `use` line. One that only passes its names on takes no path: who uses them
    /// does.
    fn import(&mut self, tree: &UseTree, mut path: Vec<String>, passes_on: bool) {
        match tree {
            UseTree::Path(one) => {
                path.push(one.ident.to_string());
                self.import(&one.tree, path, passes_on);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path.clone(), passes_on);
                }
            }
            UseTree::Glob(_) => {
                self.take(&path, passes_on);
                self.globs.push(path);
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(name) = path.last().cloned() {
                    self.name(name, Named::Import(path));
                }
            }
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.take(&path, passes_on);
                self.name(name.ident.to_string(), Named::Import(path));
            }
            UseTree::Rename(renamed) => {
                path.push(renamed.ident.to_string());
                self.take(&path, passes_on);
                self.name(renamed.rename.to_string(), Named::Import(path));
            }
        }
    }

    fn take(&mut self, path: &[String], passes_on: bool) {
        if !passes_on {
            self.paths.push(path.to_vec());
        }
    }
}

/// Collects what the code of one module imports and names.
struct Reader<'a> {
    module: &'a mut Module,
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, line: &'ast syn::ItemUse) {
        let passes_on = !matches!(line.vis, syn::Visibility::Inherited);
        self.module.import(&line.tree, Vec::new(), passes_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        let names = segments.map(|segment| segment.ident.to_string());
        self.module.paths.push(names.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        read_tokens(call.tokens.clone(), &mut self.module.paths);
    }
}

/// The paths among the tokens of a macro, of two names and more.
fn read_tokens(tokens: TokenStream, paths: &mut Vec<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    let mut end = |path: &mut Vec<String>| {
        if path.len() > 1 {
            paths.push(std::mem::take(path));
        }
        path.clear();
    };
    let mut inner = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 {
                    end(&mut path);
                }
                path.push(name.to_string());
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Group(group) => {
                end(&mut path);
                colons = 0;
                // `use` lines are no tokens of ours; a group of any other kind holds code.
                if group.delimiter() != Delimiter::None {
                    inner.push(group.stream());
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {
                end(&mut path);
                colons = 0;
            }
        }
    }
    end(&mut path);
    for tokens in inner {
        read_tokens(tokens, paths);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    if is_for_tests(attributes(item)) {
        return None;
    }
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Whether something is compiled for tests alone.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        let text = list.tokens.to_string();
        list.path.is_ident("cfg") && (text == "test" || text.starts_with("all (test"))
    })
}
