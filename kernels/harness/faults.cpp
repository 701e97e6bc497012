// SPDX-License-Identifier: MIT
#include "faults.h"
