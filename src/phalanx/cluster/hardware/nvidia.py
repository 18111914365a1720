"""Accelerators of NVIDIA."""

from __future__ import annotations

from phalanx.cluster.hardware.rows import AcceleratorRow, Source

K80: Source = ("NVIDIA Tesla K80 board specification, half of the two-GPU board, not re-checked", "2015-01")
P100: Source = ("NVIDIA Tesla P100 datasheet (SXM2), not re-checked", "2016-10")
V100: Source = ("NVIDIA Tesla V100 datasheet (SXM2), not re-checked", "2018-03")
T4: Source = ("NVIDIA T4 datasheet, not re-checked", "2019-03")
A10: Source = ("NVIDIA A10 datasheet, not re-checked", "2022-03")
A10G: Source = ("NVIDIA A10G datasheet for AWS G5, not re-checked", "2021-11")
A30: Source = ("NVIDIA A30 datasheet, not re-checked", "2021-04")
A100: Source = ("NVIDIA A100 datasheet (SXM4), not re-checked", "2022-06")
L4: Source = ("NVIDIA L4 datasheet, not re-checked", "2023-03")
L40S: Source = ("NVIDIA L40S datasheet, not re-checked", "2023-08")
H100: Source = ("NVIDIA H100 datasheet (SXM5), not re-checked", "2023-04")
H200: Source = ("NVIDIA H200 datasheet (SXM), not re-checked", "2024-11")
B200: Source = ("NVIDIA HGX B200 figures as listed by G. Lockwood, per GPU at 1000 W", "2026-11-15")
GB200: Source = ("NVIDIA GB200 figures as listed by G. Lockwood, per GPU at 1200 W", "2026-11-15")
MIG_GUIDE: Source = ("NVIDIA MIG User Guide, supported GPUs", "2026-11-15")
NVLINK: Source = ("NVLink total of the vendor's datasheet, halved for one direction, not re-checked", "2024")
NVLINK_5: Source = ("NVIDIA Blackwell NVLink 5, 900 GB/s each way, as listed by G. Lockwood", "2026-11-15")
PCIE_3: Source = ("PCI Express 3.0 x16 after 128b/130b coding; no NVLink", "2010-11")
PCIE_4: Source = ("PCI Express 4.0 x16 after 128b/130b coding; no NVLink", "2017-10")
A30_PCIE: Source = ("PCI Express 4.0 x16 after 128b/130b coding; the NVLink bridge joins two GPUs only", "2017-10")
DGX_1: Source = ("NVIDIA DGX-1: 4 x 100 Gbit/s over 8 GPUs, not re-checked", "2017")
DGX_A100: Source = ("NVIDIA DGX A100: 200 Gbit/s per GPU, not re-checked", "2020")
DGX_H100: Source = ("NVIDIA DGX H100/H200/B200: 400 Gbit/s per GPU, not re-checked", "2024")
GB200_NIC: Source = ("NVIDIA GB200 NVL72: 400 Gbit/s ConnectX-7 per GPU, not re-checked", "2024")
A30_NIC: Source = ("Estimate: 100 Gbit/s over the 4 GPUs of a server; the vendor has no reference system", "2026-11-15")
AWS_P2: Source = ("AWS p2.16xlarge: 25 Gbit/s over 16 GPUs, not re-checked", "2016-09")
AWS_G4: Source = ("AWS g4dn.metal: 100 Gbit/s over 8 GPUs, not re-checked", "2019-09")
AWS_G5: Source = ("AWS g5.48xlarge: 100 Gbit/s over 8 GPUs, not re-checked", "2021-11")
AWS_G6: Source = ("AWS g6.48xlarge: 100 Gbit/s over 8 GPUs, not re-checked", "2024-04")
AWS_G6E: Source = ("AWS g6e.48xlarge: 400 Gbit/s over 8 GPUs, not re-checked", "2024-08")
NO_BF16_FP16 = "fp16: the device has no bf16"
NO_BF16_FP32 = "fp32: the device has neither bf16 nor fast fp16"
MIG_A30 = ("1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb")
MIG_A100_40 = ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
MIG_80 = ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
MIG_H200 = ("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb")
MIG_B200 = ("1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb")
MIG_GB200 = ("1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb")

ACCELERATORS: tuple[AcceleratorRow, ...] = (
    AcceleratorRow(
        name="K80",
        vendor="NVIDIA",
        year=2014,
        memory_gb=(12, K80),
        peak_bf16_tflops=(4.37, K80),
        hbm_gb_s=(240, K80),
        in_node_gb_s=(15.75, PCIE_3),
        scale_out_gb_s=(0.195, AWS_P2),
        power_w=(150, K80),
        peak_note=NO_BF16_FP32,
        aliases=("Tesla K80", "nvidia-tesla-k80"),
    ),
    AcceleratorRow(
        name="P100",
        vendor="NVIDIA",
        year=2016,
        memory_gb=(16, P100),
        peak_bf16_tflops=(21.2, P100),
        hbm_gb_s=(732, P100),
        in_node_gb_s=(80, NVLINK),
        scale_out_gb_s=(6.25, DGX_1),
        power_w=(300, P100),
        peak_note=NO_BF16_FP16,
        aliases=("Tesla P100", "Tesla P100-SXM2-16GB", "nvidia-tesla-p100"),
    ),
    AcceleratorRow(
        name="V100",
        vendor="NVIDIA",
        year=2017,
        memory_gb=(16, V100),
        peak_bf16_tflops=(125, V100),
        hbm_gb_s=(900, V100),
        in_node_gb_s=(150, NVLINK),
        scale_out_gb_s=(6.25, DGX_1),
        power_w=(300, V100),
        peak_note=NO_BF16_FP16,
        aliases=(
            "V100-16",
            "V100-16GB",
            "V100M16",
            "Tesla V100",
            "Tesla V100-SXM2-16GB",
            "nvidia-tesla-v100",
        ),
    ),
    AcceleratorRow(
        name="V100-32",
        vendor="NVIDIA",
        year=2018,
        memory_gb=(32, V100),
        peak_bf16_tflops=(125, V100),
        hbm_gb_s=(900, V100),
        in_node_gb_s=(150, NVLINK),
        scale_out_gb_s=(6.25, DGX_1),
        power_w=(300, V100),
        peak_note=NO_BF16_FP16,
        aliases=("V100-32GB", "V100M32", "Tesla V100-SXM2-32GB"),
    ),
    AcceleratorRow(
        name="T4",
        vendor="NVIDIA",
        year=2018,
        memory_gb=(16, T4),
        peak_bf16_tflops=(65, T4),
        hbm_gb_s=(320, T4),
        in_node_gb_s=(15.75, PCIE_3),
        scale_out_gb_s=(1.5625, AWS_G4),
        power_w=(70, T4),
        peak_note=NO_BF16_FP16,
        aliases=("Tesla T4", "nvidia-tesla-t4"),
    ),
    AcceleratorRow(
        name="A100-40",
        vendor="NVIDIA",
        year=2020,
        memory_gb=(40, A100),
        peak_bf16_tflops=(312, A100),
        hbm_gb_s=(1555, A100),
        in_node_gb_s=(300, NVLINK),
        scale_out_gb_s=(25, DGX_A100),
        power_w=(400, A100),
        mig=MIG_A100_40,
        aliases=(
            "A100-40GB",
            "A100-SXM4-40GB",
            "NVIDIA A100-SXM4-40GB",
            "A100-PCIE-40GB",
            "NVIDIA A100-PCIE-40GB",
            "nvidia-tesla-a100",
        ),
    ),
    AcceleratorRow(
        name="A100-80",
        vendor="NVIDIA",
        year=2020,
        memory_gb=(80, A100),
        peak_bf16_tflops=(312, A100),
        hbm_gb_s=(2039, A100),
        in_node_gb_s=(300, NVLINK),
        scale_out_gb_s=(25, DGX_A100),
        power_w=(400, A100),
        mig=MIG_80,
        aliases=(
            "A100",
            "NVIDIA A100",
            "A100-80GB",
            "A100-SXM4-80GB",
            "NVIDIA A100-SXM4-80GB",
            "A100-80GB-PCIe",
            "NVIDIA A100 80GB PCIe",
            "nvidia-a100-80gb",
        ),
    ),
    AcceleratorRow(
        name="A30",
        vendor="NVIDIA",
        year=2021,
        memory_gb=(24, A30),
        peak_bf16_tflops=(165, A30),
        hbm_gb_s=(933, A30),
        in_node_gb_s=(31.5, A30_PCIE),
        scale_out_gb_s=(3.125, A30_NIC),
        power_w=(165, A30),
        mig=MIG_A30,
        aliases=("NVIDIA A30", "A30-24GB", "NVIDIA A30 24GB"),
    ),
    AcceleratorRow(
        name="A10",
        vendor="NVIDIA",
        year=2021,
        memory_gb=(24, A10),
        peak_bf16_tflops=(125, A10),
        hbm_gb_s=(600, A10),
        in_node_gb_s=(31.5, PCIE_4),
        scale_out_gb_s=(1.5625, AWS_G5),
        power_w=(150, A10),
        aliases=("NVIDIA A10",),
    ),
    AcceleratorRow(
        name="A10G",
        vendor="NVIDIA",
        year=2021,
        memory_gb=(24, A10G),
        peak_bf16_tflops=(70, A10G),
        hbm_gb_s=(600, A10G),
        in_node_gb_s=(31.5, PCIE_4),
        scale_out_gb_s=(1.5625, AWS_G5),
        power_w=(300, A10G),
        aliases=("NVIDIA A10G",),
    ),
    AcceleratorRow(
        name="H100",
        vendor="NVIDIA",
        year=2022,
        memory_gb=(80, H100),
        peak_bf16_tflops=(989, H100),
        hbm_gb_s=(3350, H100),
        in_node_gb_s=(450, NVLINK),
        scale_out_gb_s=(50, DGX_H100),
        power_w=(700, H100),
        mig=MIG_80,
        aliases=(
            "H100-80",
            "H100-80GB",
            "H100-SXM",
            "H100-SXM5-80GB",
            "H100-80GB-HBM3",
            "NVIDIA H100",
            "NVIDIA H100 80GB HBM3",
            "nvidia-h100-80gb",
            "nvidia-h100-mega-80gb",
        ),
    ),
    AcceleratorRow(
        name="L4",
        vendor="NVIDIA",
        year=2023,
        memory_gb=(24, L4),
        peak_bf16_tflops=(121, L4),
        hbm_gb_s=(300, L4),
        in_node_gb_s=(31.5, PCIE_4),
        scale_out_gb_s=(1.5625, AWS_G6),
        power_w=(72, L4),
        aliases=("NVIDIA L4",),
    ),
    AcceleratorRow(
        name="L40S",
        vendor="NVIDIA",
        year=2023,
        memory_gb=(48, L40S),
        peak_bf16_tflops=(362, L40S),
        hbm_gb_s=(864, L40S),
        in_node_gb_s=(31.5, PCIE_4),
        scale_out_gb_s=(6.25, AWS_G6E),
        power_w=(350, L40S),
        aliases=("NVIDIA L40S",),
    ),
    AcceleratorRow(
        name="H200",
        vendor="NVIDIA",
        year=2024,
        memory_gb=(141, H200),
        peak_bf16_tflops=(989, H200),
        hbm_gb_s=(4800, H200),
        in_node_gb_s=(450, NVLINK),
        scale_out_gb_s=(50, DGX_H100),
        power_w=(700, H200),
        mig=MIG_H200,
        aliases=("H200-141GB", "H200-SXM", "NVIDIA H200", "nvidia-h200-141gb"),
    ),
    AcceleratorRow(
        name="B200",
        vendor="NVIDIA",
        year=2024,
        memory_gb=(180, MIG_GUIDE),
        peak_bf16_tflops=(2250, B200),
        hbm_gb_s=(8000, B200),
        in_node_gb_s=(900, NVLINK_5),
        scale_out_gb_s=(50, DGX_H100),
        power_w=(1000, B200),
        mig=MIG_B200,
        aliases=("B200-180GB", "NVIDIA B200"),
    ),
    AcceleratorRow(
        name="GB200",
        vendor="NVIDIA",
        year=2024,
        memory_gb=(186, MIG_GUIDE),
        peak_bf16_tflops=(2500, GB200),
        hbm_gb_s=(8000, GB200),
        in_node_gb_s=(900, NVLINK_5),
        scale_out_gb_s=(50, GB200_NIC),
        power_w=(1200, GB200),
        mig=MIG_GB200,
        aliases=("GB200-NVL72", "NVIDIA GB200"),
    ),
)
