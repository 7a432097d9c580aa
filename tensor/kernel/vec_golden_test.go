package kernel

// goldenBits is the FNV-1a hash of each kernel's results in TestGoldenBits. A new hash is a change of the kernels'
// definition: name it in the changelog, because logs recorded before it no longer replay.
var goldenBits = map[string]string{
	"Add":                 "3224cd10c88c519b",
	"AddInto":             "3224cd10c88c519b",
	"Mul":                 "ab530940e1db94b1",
	"Scale":               "f17eec4196f73c81",
	"Axpy":                "cdcdfbe02f7c6708",
	"ExpInto":             "64c60753b88e4280",
	"ExpScaled":           "2e679d11ffb6c471",
	"RoPE":                "2fe6374f0179c49f",
	"RoPEGrad":            "1b58f0e57c49f805",
	"AdamW":               "36fe15922a33bad4",
	"Transpose":           "d80a5c63c45e7c2a",
	"SwiGLU":              "c06f363a2d4f3d9d",
	"SwiGLUGrad":          "339a992f89920cde",
	"SquaredReLU":         "5fb41e33ede2b509",
	"SquaredReLUGrad":     "2fb7e11ca0cf6139",
	"CrossEntropyGrad":    "77082e1a9fb7187e",
	"RMSNorm":             "7c00def8c8574c1b",
	"RMSNormGrad":         "9ec2b85d8894b1fb",
	"Sum":                 "75010c8e335465fc",
	"Dot":                 "23e5f03468633555",
	"SumSquares":          "a9405f1f91a0c285",
	"Max":                 "c8936a5add52f30e",
	"MaxIndex":            "428446f0c0ccfb27",
	"SumExp":              "a85b61c3a2004549",
	"SoftmaxInto":         "83689ca3cc42a6d1",
	"SoftmaxIntoNegative": "3c90687b024fdd02",
	"SoftmaxGradRow":      "51feaa9afc9fe743",
}
