# SPDX-License-Identifier: MIT
"""A64 encodings whose extension the lab tells apart: data only, read by `instruction_classes`.

One line a group: classes, fixed bits (mask), their values, and the group's name as in the index by encoding
of the Arm Architecture Reference Manual (chapter C4), narrowed in parentheses where only a part is meant. In
one space a later line wins over an earlier one, so that each starts with its widest group.
"""

from __future__ import annotations

SPACES: tuple[tuple[str, int, int, str], ...] = (
    (
        "Data Processing -- Scalar Floating-Point and Advanced SIMD",
        0x0E000000,
        0x0E000000,
        """
neon          9E000000 0E000000 Advanced SIMD (vector forms)
neon          DE000000 5E000000 Advanced SIMD scalar
-             FF000000 CE000000 Cryptographic three-register and four-register
-             FF3E0C00 4E280800 Cryptographic AES
-             FF208C00 5E000000 Cryptographic three-register SHA
-             FF3E0C00 5E280800 Cryptographic two-register SHA
fp16          9F60C400 0E400400 Advanced SIMD three same (FP16)
fp16          DF60C400 5E400400 Advanced SIMD scalar three same FP16
fp16          9F7E0C00 0E780800 Advanced SIMD two-register miscellaneous (FP16)
fp16          DF7E0C00 5E780800 Advanced SIMD scalar two-register miscellaneous FP16
fp16          BFE0E400 2E40C400 Advanced SIMD three-register extension (FCMLA, half-precision)
fp16          BFE0EC00 2E40E400 Advanced SIMD three-register extension (FCADD, half-precision)
fp16          BF7FFC00 0E30C800 Advanced SIMD across lanes (FMAXNMV and FMINNMV, half-precision)
fp16          BF7FFC00 0E30F800 Advanced SIMD across lanes (FMAXV and FMINV, half-precision)
fp16          FF7FCC00 5E30C800 Advanced SIMD scalar pairwise (half-precision)
fp16          BFC0F400 0F001000 Advanced SIMD vector x indexed element (FMLA, half-precision)
fp16          BFC0F400 0F005000 Advanced SIMD vector x indexed element (FMLS, half-precision)
fp16          9FC0F400 0F009000 Advanced SIMD vector x indexed element (FMUL and FMULX, half-precision)
fp16          FFC0F400 5F001000 Advanced SIMD scalar x indexed element (FMLA, half-precision)
fp16          FFC0F400 5F005000 Advanced SIMD scalar x indexed element (FMLS, half-precision)
fp16          DFC0F400 5F009000 Advanced SIMD scalar x indexed element (FMUL and FMULX, half-precision)
fp16          BFC09400 2F401000 Advanced SIMD vector x indexed element (FCMLA, half-precision)
fp16          BFF8FC00 0F00FC00 Advanced SIMD modified immediate (FMOV, half-precision)
fp16          9FF0FC00 0F10E400 Advanced SIMD shift by immediate (SCVTF and UCVTF, half-precision)
fp16          9FF0FC00 0F10FC00 Advanced SIMD shift by immediate (FCVTZS and FCVTZU, half-precision)
fp16          DFF0FC00 5F10E400 Advanced SIMD scalar shift by immediate (SCVTF and UCVTF, half-precision)
fp16          DFF0FC00 5F10FC00 Advanced SIMD scalar shift by immediate (FCVTZS and FCVTZU, half-precision)
fp16          BF20FC00 0E20EC00 Advanced SIMD three same (FMLAL and FMLSL)
fp16          BF20FC00 2E20CC00 Advanced SIMD three same (FMLAL2 and FMLSL2)
fp16          BFC0B400 0F800000 Advanced SIMD vector x indexed element (FMLAL and FMLSL)
fp16          BFC0B400 2F808000 Advanced SIMD vector x indexed element (FMLAL2 and FMLSL2)
fp16          FFE00000 1EE00000 Floating-point data-processing, compare, immediate, select (half-precision)
-             FFFF7C00 1EE24000 Floating-point data-processing (1 source) (FCVT from half-precision)
fp16          7FE0FC00 1EE00000 Conversion between floating-point and integer (half-precision)
fp16          7FE00000 1EC00000 Conversion between floating-point and fixed-point (half-precision)
fp16          FFC00000 1FC00000 Floating-point data-processing (3 source) (half-precision)
dotprod       9FE0FC00 0E809400 Advanced SIMD three-register extension (SDOT and UDOT)
dotprod       9FC0F400 0F80E000 Advanced SIMD vector x indexed element (SDOT and UDOT)
i8mm          DFE0FC00 4E80A400 Advanced SIMD three-register extension (SMMLA and UMMLA)
i8mm          FFE0FC00 4E80AC00 Advanced SIMD three-register extension (USMMLA)
i8mm          BFE0FC00 0E809C00 Advanced SIMD three-register extension (USDOT)
i8mm          BF40F400 0F00F000 Advanced SIMD vector x indexed element (USDOT and SUDOT)
bf16          BFE0FC00 2E40FC00 Advanced SIMD three-register extension (BFDOT)
bf16          FFE0FC00 6E40EC00 Advanced SIMD three-register extension (BFMMLA)
bf16          BFE0FC00 2EC0FC00 Advanced SIMD three-register extension (BFMLALB and BFMLALT)
bf16          BF40F400 0F40F000 Advanced SIMD vector x indexed element (BFDOT, BFMLALB, BFMLALT)
bf16          BFFFFC00 0EA16800 Advanced SIMD two-register miscellaneous (BFCVTN)
bf16          FFFFFC00 1E634000 Floating-point data-processing (1 source) (BFCVT)
""",
    ),
    (
        "Loads and Stores",
        0x0E000000,
        0x0C000000,
        """
neon          BE000000 0C000000 Advanced SIMD load/store multiple and single structures
""",
    ),
    (
        "SVE encodings",
        0x1E000000,
        0x04000000,
        """
sve           1E000000 04000000 SVE encodings
sve2          FF24E000 04042000 SVE integer reductions to quadword elements (SVE2.1)
sve2          FF3CE000 04088000 SVE Bitwise Shift by Immediate - Predicated (saturating, rounding)
sve           FF3EE000 04088000 SVE Bitwise Shift by Immediate - Predicated (unallocated)
sve           FF3FE000 04048000 SVE Bitwise Shift by Immediate - Predicated (ASRD)
sve2          FF3EE000 04068000 SVE Bitwise Shift by Immediate - Predicated (SQSHL and UQSHL)
sve2          FF3EE000 040C8000 SVE Bitwise Shift by Immediate - Predicated (SRSHR and URSHR)
sve2          FF3FE000 040F8000 SVE Bitwise Shift by Immediate - Predicated (SQSHLU)
sve2          FF20FC00 04203400 SVE Bitwise Logical - Unpredicated (XAR)
sve2          FF20F800 04203800 SVE2 bitwise ternary operations
sve2          FF20E000 04206000 SVE2 Integer Multiply - Unpredicated
sve2          FF208000 44000000 SVE Integer Multiply-Add - Unpredicated
sve           FF20F800 44000000 SVE integer dot product (unpredicated)
sve,i8mm      FFE0FC00 44807800 SVE mixed sign dot product
sve2          FF20C000 44008000 SVE2 Integer - Predicated
sme           FF20F800 4400C000 SVE clamp (SCLAMP and UCLAMP: SME or SVE2.1)
sme2          FF60F800 4400C800 SVE two-way dot product (SME2 or SVE2.1)
sve2          FF20E000 4400E000 SVE permute vector elements (quadwords: SVE2.1)
sve2          FF200000 44200000 SVE Multiply - Indexed
sve           FF20F800 44200000 SVE integer dot product (indexed)
sve,i8mm      FFE0F800 44A01800 SVE mixed sign dot product (indexed)
sve2          FF000000 45000000 SVE2 Widening, accumulate, narrowing, match, histogram, cryptography
sve,i8mm      FF20FC00 45009800 SVE integer matrix multiply accumulate
sme2          FFFFE020 45314000 SVE2 multi-vector narrow (SQCVTN and kin: SME2 or SVE2.1)
sme2          FFF0C020 45B00000 SVE2 multi-vector shift narrow (SQRSHRN and kin: SME2 or SVE2.1)
sve2          FFE0E000 05600000 SVE permute vector - extract (constructive)
sve2          FF20F800 05202800 SVE table lookup (TBL of two vectors, TBX)
sve2          FF20FC00 05202400 SVE broadcast, extract in quadwords (SVE2.1)
sve2          FF20FC00 05203400 SVE table lookup in quadwords (TBXQ: SVE2.1)
sve2          FF38FC00 05283800 SVE move predicate to and from vector (PMOV: SVE2.1)
sve2          FF3FE000 052D8000 SVE vector splice (constructive)
sme           FFFFE000 052E8000 SVE reverse doublewords (REVD: SME or SVE2.1)
sve2          FF20E400 25200000 SVE integer compare scalar count and limit (decrementing)
sve2          FF20FC00 25203000 SVE pointer conflict compare
sme           FF20C210 25204000 SVE broadcast predicate element (PSEL: SME or SVE2.1)
sme2          FF20C010 25204010 SVE predicate-as-counter, predicate pairs (SME2 or SVE2.1)
sme2          FF3FFA00 25208200 SVE predicate count (predicate-as-counter: SME2 or SVE2.1)
sve2          FF38E000 64108000 SVE2 floating-point pairwise operations
sve2          FF38E000 6410A000 SVE floating-point reductions to quadword elements (SVE2.1)
sve2          FF3CE000 6408A000 SVE2 floating-point convert precision odd elements
sve,bf16      FFFFE000 648AA000 SVE2 floating-point convert precision odd elements (BFCVTNT)
sme2          FFE0FC00 64208000 SVE floating-point dot product (SME2 or SVE2.1)
sme2          FFE0FC00 64204000 SVE floating-point dot product (indexed: SME2 or SVE2.1)
sve,bf16      FFE0FC00 64608000 SVE BFloat16 floating-point dot product
sve,bf16      FFE0FC00 64604000 SVE BFloat16 floating-point dot product (indexed)
sve2          FFE0D800 64A08000 SVE floating-point multiply-add long
sve2          FFE0D000 64A04000 SVE floating-point multiply-add long (indexed)
sve,bf16      FFE0F800 64E08000 SVE BFloat16 multiply-add long
sme2          FFE0F800 64E0A000 SVE BFloat16 multiply-subtract long (SME2 or SVE2.1)
sve,bf16      FFE0F000 64E04000 SVE BFloat16 multiply-add long (indexed)
sme2          FFE0F000 64E06000 SVE BFloat16 multiply-subtract long (indexed: SME2 or SVE2.1)
sme2          FF20FC00 64202400 SVE floating-point clamp (FCLAMP: SME2 or SVE2.1)
sve,bf16      FFE0FC00 6460E400 SVE floating-point matrix multiply accumulate (BFMMLA)
sve2          FFF9E000 6518A000 SVE2 floating-point logarithm (FLOGB)
sve2          FFFFE000 650AA000 SVE floating-point convert precision (FCVTX)
sve,bf16      FFFFE000 658AA000 SVE floating-point convert precision (BFCVT)
sve2          FE60C000 84008000 SVE2 32-bit gather non-temporal load
sve2          FE60A000 C4008000 SVE2 64-bit gather non-temporal load
sve2          FE20E000 E4002000 SVE2 scatter non-temporal store
sme           FFFFF800 04BF5800 Streaming SVE stack frame size (RDSVL)
sme           FFA0F800 04205800 Streaming SVE stack frame adjustment (ADDSVL and ADDSPL)
""",
    ),
    (
        "SME encodings",
        0x9E000000,
        0x80000000,
        """
sme           9E000000 80000000 SME encodings
sme2          DE800008 80800008 SME2 outer product (binary, two-way integer, non-widening half)
sme2          DE800000 80000000 SME2 multi-vector memory, quarter tile and other outer products
sme2          FF000000 C1000000 SME2 Multi-vector - Array vectors, indexed, multiple, data processing
sme2          FF3C0000 C0040000 SME2 Move multi-vector to and from array
sme2          FFFF0000 C00C0000 SME zero array (SME2.1)
sme2          FFF80000 C0480000 SME2 zero lookup table, move lookup table
sme2          FF880000 C0880000 SME2 Expand lookup table
sme           FFBE0018 C0900000 SME add vector to array
sme2          FFDFFC1F E11F8000 SME2 lookup table load/store
""",
    ),
    (
        "Branches, Exception Generating and System instructions",
        0xFE000000,
        0xD4000000,
        """
sme           FFFFF0FF D503407F PSTATE (SVCR: SMSTART and SMSTOP)
""",
    ),
)
"""Space: its name, mask and value, and its groups."""
