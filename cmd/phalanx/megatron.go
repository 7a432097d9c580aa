package main

import (
	"errors"
	"io"
	"os"
	"regexp"

	"github.com/spf13/cobra"

	"phalanx/convert/megatron"
)

func (a *app) megatronArgsVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "megatron-args FILE [NAME=value …] | -- ARGUMENTS",
		Short: "turns a command line of Megatron-LM, or the shell script that holds it, into a scenario",
		Long: "Prints a scenario of the arguments in FILE (a shell script, of which nothing is run, or arguments alone; - is standard input), or\n" +
			"of the arguments behind --. NAME=value sets a variable of the script. Each flag becomes a key, or a comment that says why it changes\n" +
			"nothing here, or is refused by name.",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return a.megatronArgs(args, c.ArgsLenAtDash()) },
	}
}

var shellVariable = regexp.MustCompile(`^([A-Za-z_]\w*)=(.*)$`)

// megatronArgs: dash is how many of the arguments stand before --, -1 without it.
func (a *app) megatronArgs(args []string, dash int) error {
	source, line, err := "command line", megatron.Line{}, error(nil)
	switch {
	case dash == 0:
		line = megatron.Args(args)
	case dash > 0 || len(args) == 0:
		return usagef("phalanx megatron-args: expected a FILE, or arguments behind --, as in `phalanx megatron-args -- --num-layers 2 …`")
	default:
		source = args[0]
		line, err = a.script(source, args[1:])
	}
	if err != nil {
		return err
	}
	text, err := megatron.Scenario(source, line)
	if err != nil {
		return err
	}
	a.printf("%s", text)
	return nil
}

// script reads the command line of a file.
func (a *app) script(name string, rest []string) (megatron.Line, error) {
	set := map[string]string{}
	for _, arg := range rest {
		m := shellVariable.FindStringSubmatch(arg)
		if m == nil {
			return megatron.Line{}, usagef("phalanx megatron-args: found %q behind the file, expected NAME=value", arg)
		}
		set[m[1]] = m[2]
	}
	in := a.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return megatron.Line{}, usagef("%s: cannot be read: %v; expected a shell script or arguments", name, cause(err))
		}
		defer f.Close()
		in = f
	}
	src, err := io.ReadAll(io.LimitReader(in, megatron.ScriptBytesMax+1))
	if err != nil {
		return megatron.Line{}, usagef("%s: cannot be read: %v", name, cause(err))
	}
	return megatron.Script(name, src, set)
}

// cause is an error of the operating system without the path, which is told before it.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
