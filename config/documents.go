package config

import "fmt"

// Document is one document of a packed row: where it starts, how many positions its data has, and how many its place has.
// A logical end before the physical one leaves padding between documents, as context parallelism asks for in Megatron.
type Document struct{ Start, Logical, Physical int }

// Fault is what is wrong with the lists that lay out a row: a key below the row, as documents.2, and what was found and
// expected.
type Fault struct{ Key, Message string }

// faultAt is a fault of an entry of a list.
func faultAt(list string, i int, format string, args ...any) *Fault {
	return &Fault{fmt.Sprintf("%s.%d", list, i), fmt.Sprintf(format, args...)}
}

// Packed reports whether a row says where its documents lie; otherwise it is one document.
func (r *Row) Packed() bool { return r.LayoutKey() != "" }

// LayoutKey is the key that says where the documents of a row end: its physical lengths or boundaries if it has them, else
// the logical ones; empty without any.
func (r *Row) LayoutKey() string {
	for _, list := range []struct {
		key    string
		values []int
	}{{"cu_seqlens_padded", r.CuSeqlensPadded}, {"documents_padded", r.DocumentsPadded}, {"cu_seqlens", r.CuSeqlens}, {"documents", r.Documents}} {
		if list.values != nil {
			return list.key
		}
	}
	return ""
}

// Layout is where the documents of a row lie, behind each other from position 0; nil: the row is one document. Lengths
// (documents, documents_padded) and Megatron's boundaries (cu_seqlens, cu_seqlens_padded) say the same thing. A fault is
// lists that contradict themselves, each other, or what the row says of its tokens and padding.
func (r *Row) Layout() ([]Document, *Fault) {
	if f := r.spelling(); f != nil || !r.Packed() {
		return nil, f
	}
	docs, f := r.listed()
	if f == nil {
		f = r.disagrees(docs)
	}
	if f != nil {
		return nil, f
	}
	return docs, nil
}

// listed is the documents as the row lists them, in either spelling.
func (r *Row) listed() ([]Document, *Fault) {
	if r.CuSeqlens == nil {
		return laidOut("documents", r.Documents, "documents_padded", r.DocumentsPadded)
	}
	logical, f := lengths("cu_seqlens", r.CuSeqlens)
	if f != nil {
		return nil, f
	}
	physical, f := lengths("cu_seqlens_padded", r.CuSeqlensPadded)
	if f != nil {
		return nil, f
	}
	return laidOut("cu_seqlens", logical, "cu_seqlens_padded", physical)
}

// spelling refuses a row that says where its documents lie in two ways, or by half.
func (r *Row) spelling() *Fault {
	const twice = "is given beside documents, which says the same thing; remove one of the two"
	switch {
	case r.Documents != nil && r.CuSeqlens != nil:
		return &Fault{"cu_seqlens", twice}
	case r.Documents != nil && r.CuSeqlensPadded != nil:
		return &Fault{"cu_seqlens_padded", "is given beside documents; write documents_padded, or cu_seqlens instead of documents"}
	case r.CuSeqlens != nil && r.DocumentsPadded != nil:
		return &Fault{"documents_padded", "is given beside cu_seqlens; write cu_seqlens_padded, or documents instead of cu_seqlens"}
	case r.Documents == nil && r.DocumentsPadded != nil:
		return &Fault{"documents_padded", "is given without documents; expected documents beside it, the lengths without padding"}
	case r.CuSeqlens == nil && r.CuSeqlensPadded != nil:
		return &Fault{"cu_seqlens_padded", "is given without cu_seqlens; expected cu_seqlens beside it, the boundaries without padding"}
	}
	return nil
}

// lengths turns Megatron's boundaries into lengths; nil of nil.
func lengths(key string, bounds []int) ([]int, *Fault) {
	if bounds == nil {
		return nil, nil
	}
	if len(bounds) < 2 {
		return nil, &Fault{key, fmt.Sprintf("has length %d, expected at least 2: 0 and where each document ends", len(bounds))}
	}
	if bounds[0] != 0 {
		return nil, faultAt(key, 0, "found %d, expected 0, where the first document starts", bounds[0])
	}
	out := make([]int, len(bounds)-1)
	for i := range out {
		from, to := bounds[i], bounds[i+1]
		if to < from || to > MaxSeqLength {
			return nil, faultAt(key, i+1, "found %d, expected the end of document %d, from %d to %d; boundaries never fall", to, i, from, MaxSeqLength)
		}
		out[i] = to - from
	}
	return out, nil
}

// laidOut puts documents behind each other. Absent physical lengths are the logical ones.
func laidOut(logicalKey string, logical []int, physicalKey string, physical []int) ([]Document, *Fault) {
	first := 0 // boundaries have one more entry than documents
	if logicalKey == "cu_seqlens" {
		first = 1
	}
	if physical != nil && len(physical) != len(logical) {
		return nil, &Fault{physicalKey, fmt.Sprintf("has length %d, expected %d, as %s", first+len(physical), first+len(logical), logicalKey)}
	}
	docs, at := make([]Document, len(logical)), 0
	for i, n := range logical {
		if n < 0 || n > MaxSeqLength {
			return nil, faultAt(logicalKey, first+i, "found %d, expected a length from 0 to %d", n, MaxSeqLength)
		}
		place := n
		if physical != nil {
			place = physical[i]
		}
		switch {
		case place < n && first == 1:
			return nil, faultAt(physicalKey, i+1, "found %d, expected at least %d: document %d starts at %d and has length %d", at+place, at+n, i, at, n)
		case place < n || place > MaxSeqLength:
			return nil, faultAt(physicalKey, i, "found %d, expected a length from %d to %d: document %d has length %d", place, n, MaxSeqLength, i, n)
		}
		docs[i] = Document{Start: at, Logical: n, Physical: place}
		at += place
	}
	return docs, nil
}

// extent is the tokens and the positions of documents.
func extent(docs []Document) (logical, physical int) {
	for _, d := range docs {
		logical += d.Logical
		physical = d.Start + d.Physical
	}
	return logical, physical
}

// disagrees is what the rest of a row says against its documents; nil if nothing: with tokens every place is written out,
// valid is the sum of the documents, and a mask calls a position behind a document's end padding.
func (r *Row) disagrees(docs []Document) *Fault {
	logical, physical := extent(docs)
	switch {
	case r.Valid != nil && *r.Valid != logical:
		return &Fault{"valid", fmt.Sprintf("found %d, expected %d, the tokens of the documents; or remove valid", *r.Valid, logical)}
	case r.Tokens != nil && len(r.Tokens) < physical:
		return &Fault{"tokens", fmt.Sprintf("has length %d, expected at least %d, one for each position of the documents' places, padding written out", len(r.Tokens), physical)}
	}
	for i, d := range docs {
		for at := d.Start + d.Logical; at < d.Start+d.Physical; at++ {
			if at < len(r.PaddingMask) && r.PaddingMask[at] == 0 {
				return faultAt("padding_mask", at, "found 0, expected 1: document %d has length %d in a place of %d, and the rest is padding", i, d.Logical, d.Physical)
			}
		}
	}
	return nil
}
