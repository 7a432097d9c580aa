package checkpoint

// cut is how a whole tensor, seen as outer × parts × run elements, lies in its shards: shard i holds, for each o below
// outer, the run elements from (o·parts + i)·run on.
type cut struct{ outer, parts, run int }

// cutOf cuts a shape into parts along dim. One part is the whole tensor, whatever dim is.
func cutOf(shape []int, dim, parts int) cut {
	c := cut{outer: 1, parts: parts, run: 1}
	for i, d := range shape {
		if i < dim && parts > 1 {
			c.outer *= d
		} else {
			c.run *= d
		}
	}
	c.run /= parts
	return c
}

// local is the number of elements of a shard.
func (c cut) local() int { return c.outer * c.run }

// global is where element at of shard index lies in the whole tensor, and how many elements from there on are
// neighbours in both.
func (c cut) global(index, at int) (global, n int) {
	o, within := at/c.run, at%c.run
	return (o*c.parts+index)*c.run + within, c.run - within
}

// shard is the inverse: the shard that holds an element of the whole tensor, where in it, and how many elements from
// there on are neighbours in both.
func (c cut) shard(global int) (index, at, n int) {
	row, within := global/c.run, global%c.run
	return row % c.parts, row/c.parts*c.run + within, c.run - within
}
