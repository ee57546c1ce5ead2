// Products of int8 fragments on the tensor cores (sm_80 and up). Sums are exact. With g = lane / 4
// and t = lane % 4, a sum[16, 8] is held as rows g (the first two values) and g + 8 (the others) of
// columns 2 t and 2 t + 1.
#pragma once

#include "kernels/cuda/quant_format.cuh"

namespace volta::cuda {

/// Words of group of 32 steps of a: rows g (`first`) and g + 8 (`second`) of 16 rows.
struct RowWords {
  GroupWords first, second;
};

/// sum += a[16, 32] b[32, 8]. b holds the words of column g.
__device__ inline void multiply_group(int (&sum)[4], const RowWords& a, const GroupWords& b) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a.first.low), "r"(a.second.low), "r"(a.first.high), "r"(a.second.high), "r"(b.low),
        "r"(b.high));
}

/// sum += a[16, 16] b[16, 8]: half of a group. `first` and `second` are words of rows g and g + 8.
__device__ inline void multiply_half_group(int (&sum)[4], int first, int second, int b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(first), "r"(second), "r"(b));
}

}  // namespace volta::cuda
