/* SPDX-License-Identifier: MIT */
typedef int tierlab_kleidiai_is_packaged;
