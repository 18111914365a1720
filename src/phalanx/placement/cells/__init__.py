"""Virtual clusters in cells: which cluster owns which shape of hardware, and that it can always be had.

The rules are those of HiveD (OSDI '20): buddy allocation of physical cells to virtual ones, bound only while in use.
"""
