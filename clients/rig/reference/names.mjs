/** Prints the public names of the TypeScript client as JSON, for make.py: node names.mjs TYPESCRIPT INDEX */

import { createRequire } from "node:module";

const [typescript, index] = process.argv.slice(2);
const ts = createRequire(`${typescript}/`)("typescript");
const program = ts.createProgram([index], {
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.NodeNext,
  lib: ["lib.es2022.d.ts", "lib.dom.d.ts", "lib.dom.iterable.d.ts"],
  strict: true,
  types: [],
});
const checker = program.getTypeChecker();

const isHidden = (node) =>
  ts.getJSDocTags(node).some((tag) => tag.tagName.text === "internal") ||
  (ts.getCombinedModifierFlags(node) & ts.ModifierFlags.Private) !== 0 ||
  (node.name && ts.isPrivateIdentifier(node.name));

const oneLine = (text) =>
  text
    .replace(/\/\*\*.*?\*\//gs, "")
    .replace(/\s+/g, " ")
    .replace(/\( /g, "(")
    .replace(/,? ?\)/g, ")")
    .replace(/;? \}/g, " }")
    .trim();
const docOf = (symbol) => ts.displayPartsToString(symbol?.getDocumentationComment(checker) ?? []);

/** A declaration without its comment, modifiers, and body. */
function textOf(node) {
  const from = node.modifiers?.length ? node.modifiers.at(-1).end : node.getStart();
  const to = node.body ? node.body.getStart() : node.end;
  const text = oneLine(node.getSourceFile().text.slice(from, to)).replace(/;$/, "");
  return ts.isConstructorDeclaration(node) ? text.replaceAll("readonly ", "").replace("constructor", "new") : text;
}

/** A member, and the fields that it declares if it is a constructor. Those of a hidden one are there. */
function withFields(node) {
  const fields = ts.isConstructorDeclaration(node) ? node.parameters.filter((each) => each.modifiers) : [];
  return [node, ...fields].filter((each) => !isHidden(each));
}

function members(node) {
  const isName = (each) => each.name?.getText() === "name" && each.initializer;
  const found = node.members.flatMap(withFields).filter((each) => !isName(each));
  return found.map((each) => ({
    text: textOf(each),
    doc: docOf(each.name ? checker.getSymbolAtLocation(each.name) : undefined),
  }));
}

const all = checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(index))).map((exported) => {
  const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
  const [node] = symbol.declarations;
  const hasMembers = ts.isClassDeclaration(node) || ts.isInterfaceDeclaration(node);
  return {
    name: exported.name,
    text: hasMembers ? "" : textOf(node),
    doc: docOf(symbol),
    members: hasMembers ? members(node) : [],
  };
});
console.log(JSON.stringify(all));
