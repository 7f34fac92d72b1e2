// Prints the public names of a Go package as JSON, for make.py: go run names.go FOLDER
package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"strings"
)

type name struct {
	Name    string `json:"name"`
	Text    string `json:"text"`
	Doc     string `json:"doc"`
	Members []name `json:"members"`
}

var files = token.NewFileSet()

func text(node any) string {
	var out bytes.Buffer
	if err := format.Node(&out, files, node); err != nil {
		panic(err)
	}
	return out.String()
}

func function(f *doc.Func) name {
	f.Decl.Doc, f.Decl.Body = nil, nil
	oneLine := strings.Join(strings.Fields(text(f.Decl)), " ")
	oneLine = strings.NewReplacer("( ", "(", ", )", ")").Replace(oneLine)
	return name{Name: f.Name, Text: strings.TrimPrefix(oneLine, "func "), Doc: f.Doc}
}

// method is a function without its receiver.
func method(f *doc.Func) name {
	f.Decl.Recv = nil
	return function(f)
}

// values are the constants or variables of one declaration. Those of a type are its members.
func values(all []*doc.Value, types map[string]*name) []name {
	var found []name
	for _, value := range all {
		for _, spec := range value.Decl.Specs {
			spec := spec.(*ast.ValueSpec)
			one := name{Name: spec.Names[0].Name, Text: spec.Names[0].Name + " = " + text(spec.Values[0]), Doc: value.Doc}
			if of, isNamed := spec.Type.(*ast.Ident); isNamed && types[of.Name] != nil {
				one.Doc = ""
				types[of.Name].Members = append(types[of.Name].Members, one)
				continue
			}
			found = append(found, one)
		}
	}
	return found
}

func typed(t *doc.Type) name {
	spec := t.Decl.Specs[0].(*ast.TypeSpec)
	found := name{Name: t.Name, Doc: t.Doc}
	if fields, isStruct := spec.Type.(*ast.StructType); isStruct {
		for _, field := range fields.Fields.List {
			field.Doc, field.Comment = nil, field.Doc
			var names []string
			for _, each := range field.Names {
				names = append(names, each.Name)
			}
			all := strings.TrimSpace(strings.Join(names, ", ") + " " + text(field.Type))
			found.Members = append(found.Members, name{Name: all, Text: all, Doc: field.Comment.Text()})
		}
	} else {
		spec.Doc = nil
		found.Text = "type " + text(spec)
	}
	for _, f := range t.Funcs {
		found.Members = append(found.Members, function(f))
	}
	for _, f := range t.Methods {
		found.Members = append(found.Members, method(f))
	}
	return found
}

func main() {
	isOurs := func(file os.FileInfo) bool { return !strings.HasSuffix(file.Name(), "_test.go") }
	packages, err := parser.ParseDir(files, os.Args[1], isOurs, parser.ParseComments)
	if err != nil {
		panic(err)
	}
	found := doc.New(packages["duetime"], "duetime", 0)
	var all []name
	types := map[string]*name{}
	consts, vars := found.Consts, found.Vars
	for _, t := range found.Types {
		one := typed(t)
		types[t.Name] = &one
		consts, vars = append(consts, t.Consts...), append(vars, t.Vars...)
	}
	for _, f := range found.Funcs {
		one := function(f)
		one.Text = "func " + one.Text
		all = append(all, one)
	}
	all = append(append(all, values(consts, types)...), values(vars, types)...)
	for _, t := range found.Types {
		all = append(all, *types[t.Name])
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		panic(err)
	}
}
