// Command vec writes the vector paths of the elementwise kernels and reductions: vec_avx512_amd64.s and
// vec_avx2_amd64.s with their Go declarations. Each kernel is described once, over an emitter that stands for
// either instruction set, and follows the portable form in tensor/kernel/math*.go step by step.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	log.SetFlags(0)
	for _, s := range []isa{avx512, avx2} {
		if err := generate(s); err != nil {
			log.Fatalf("vec: %s: %v", s, err)
		}
	}
}

// generate writes the two files of one instruction set into the working directory.
func generate(s isa) error {
	e := &emitter{Context: build.NewContext(), isa: s}
	elementwise(e)
	reductions(e)
	activations(e)
	training(e)
	if s == avx2 { // moves no more than 8 elements at a time on either path
		transpose(e)
	}
	e.constantData()
	file, err := e.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return err
	}
	cfg := printer.Config{Name: "tensor/kernel/asm/vec with avo", Pkg: "kernel"}
	base := "vec_" + s.lower() + "_amd64"
	for ext, p := range map[string]printer.Printer{".s": printer.NewGoAsm(cfg), ".go": printer.NewStubs(cfg)} {
		text, err := p.Print(file)
		if err != nil {
			return fmt.Errorf("%s%s: %w", base, ext, err)
		}
		if err := os.WriteFile(base+ext, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
