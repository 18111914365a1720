"""The catalogue's rows. A source that says "not re-checked" was quoted from memory of the vendor's document.

"Estimate" and "approximate" mean that no exact number was found. Prices are for US regions.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Source: TypeAlias = tuple[str, str]
"""A document and its date, or the date on which it was read: YYYY, YYYY-MM or YYYY-MM-DD."""

Cited: TypeAlias = tuple[float, Source]
"""A number and where it comes from."""


class AcceleratorRow(NamedTuple):
    """One accelerator; the unit of each number is the end of its name, rates are one way for one device."""

    name: str
    vendor: str
    year: int
    memory_gb: Cited
    peak_bf16_tflops: Cited
    hbm_gb_s: Cited
    in_node_gb_s: Cited
    scale_out_gb_s: Cited
    power_w: Cited
    peak_note: str = ""
    mig: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


class InstanceRow(NamedTuple):
    """One instance type; prices are for the whole machine."""

    name: str
    cloud: str
    accelerator: str
    accelerator_count: int
    cpus: int
    memory_gb: float
    network_gbit_s: float
    on_demand_usd_h: Cited
    spot_usd_h: Cited | None


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

MI250: Source = ("AMD Instinct MI250 data sheet, not re-checked", "2021-11")
MI250_LINKS: Source = (
    "AMD ROCm MI250 architecture page: 50 GB/s a link; 6 outside links not re-checked",
    "2025-10-20",
)
MI250_NIC: Source = ("Four-module node with one 200 Gbit/s card per module, approximate", "2022")
MI300X: Source = ("AMD Instinct MI300X data sheet, not re-checked", "2023-12")
MI300X_LINKS: Source = (
    "AMD Instinct MI300X: 7 links of 64 GB/s each way, as listed by gpu.blog",
    "2026-11-15",
)
MI300X_NIC: Source = ("Azure ND MI300X v5: 400 Gbit/s per GPU, not re-checked", "2024-05")

TPU_V3: Source = ("Google Cloud TPU v3 page", "2026-11-15")
TPU_V4: Source = ("Google Cloud TPU v4 page", "2026-11-15")
TPU_V5E: Source = ("Google Cloud TPU v5e page", "2026-11-15")
TPU_V5P: Source = ("Google Cloud TPU v5p page", "2026-11-15")
TPU_V6E: Source = ("Google Cloud TPU v6e page, not re-checked", "2025")
TPU_PAPER: Source = (
    "Jouppi et al., TPU v4, ISCA 2023: v3 4 x 70 GB/s, v4 6 x 50 GB/s, not re-checked",
    "2023-06",
)
TPU_HOST: Source = ("Estimate: 100 Gbit/s host network over 4 chips; none is published", "2026-11-15")
TPU_POWER: Source = ("Estimate: the vendor publishes no power for this chip", "2026-11-15")

TRN2: Source = ("AWS Neuron documentation 2.29, Trainium2 architecture", "2026-11-15")
TRN2_MEMORY: Source = ("AWS Neuron documentation, Trainium2 architecture, not re-checked", "2025")
TRN2_EFA: Source = ("AWS trn2.48xlarge: 3.2 Tbit/s over 16 chips, not re-checked", "2024-12")
TRN2_POWER: Source = ("Estimate: the vendor publishes no power for this chip", "2026-11-15")

GAUDI3: Source = ("Intel Gaudi 3 figures (OAM) as listed by evokernel-specs and yobitel.com", "2026-11-15")
GAUDI3_PORTS: Source = (
    "Intel Gaudi 3 white paper: 21 ports of 200 Gbit/s inside, 3 outside, not re-checked",
    "2024-04",
)

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
    AcceleratorRow(
        name="MI250",
        vendor="AMD",
        year=2021,
        memory_gb=(128, MI250),
        peak_bf16_tflops=(362.1, MI250),
        hbm_gb_s=(3277, MI250),
        in_node_gb_s=(300, MI250_LINKS),
        scale_out_gb_s=(25, MI250_NIC),
        power_w=(500, MI250),
        aliases=("Instinct MI250", "AMD Instinct MI250"),
    ),
    AcceleratorRow(
        name="MI300X",
        vendor="AMD",
        year=2023,
        memory_gb=(192, MI300X),
        peak_bf16_tflops=(1307.4, MI300X),
        hbm_gb_s=(5300, MI300X),
        in_node_gb_s=(448, MI300X_LINKS),
        scale_out_gb_s=(50, MI300X_NIC),
        power_w=(750, MI300X),
        aliases=("Instinct MI300X", "AMD Instinct MI300X"),
    ),
    AcceleratorRow(
        name="TPU-v3",
        vendor="Google",
        year=2018,
        memory_gb=(32, TPU_V3),
        peak_bf16_tflops=(123, TPU_V3),
        hbm_gb_s=(900, TPU_V3),
        in_node_gb_s=(280, TPU_PAPER),
        scale_out_gb_s=(3.125, TPU_HOST),
        power_w=(262, TPU_V3),
        aliases=("v3", "TPUv3", "tpu-v3-slice"),
    ),
    AcceleratorRow(
        name="TPU-v4",
        vendor="Google",
        year=2021,
        memory_gb=(32, TPU_V4),
        peak_bf16_tflops=(275, TPU_V4),
        hbm_gb_s=(1200, TPU_V4),
        in_node_gb_s=(300, TPU_PAPER),
        scale_out_gb_s=(3.125, TPU_HOST),
        power_w=(192, TPU_V4),
        aliases=("v4", "TPUv4", "tpu-v4-podslice"),
    ),
    AcceleratorRow(
        name="TPU-v5e",
        vendor="Google",
        year=2023,
        memory_gb=(16, TPU_V5E),
        peak_bf16_tflops=(197, TPU_V5E),
        hbm_gb_s=(819, TPU_V5E),
        in_node_gb_s=(200, TPU_V5E),
        scale_out_gb_s=(3.125, TPU_V5E),
        power_w=(200, TPU_POWER),
        aliases=("v5e", "TPUv5e", "v5litepod", "tpu-v5-lite-podslice"),
    ),
    AcceleratorRow(
        name="TPU-v5p",
        vendor="Google",
        year=2023,
        memory_gb=(95, TPU_V5P),
        peak_bf16_tflops=(459, TPU_V5P),
        hbm_gb_s=(2765, TPU_V5P),
        in_node_gb_s=(600, TPU_V5P),
        scale_out_gb_s=(6.25, TPU_V5P),
        power_w=(450, TPU_POWER),
        aliases=("v5p", "TPUv5p", "tpu-v5p-slice"),
    ),
    AcceleratorRow(
        name="TPU-v6e",
        vendor="Google",
        year=2024,
        memory_gb=(32, TPU_V6E),
        peak_bf16_tflops=(918, TPU_V6E),
        hbm_gb_s=(1640, TPU_V6E),
        in_node_gb_s=(400, TPU_V6E),
        scale_out_gb_s=(12.5, TPU_V6E),
        power_w=(300, TPU_POWER),
        aliases=("v6e", "TPUv6e", "Trillium", "tpu-v6e-slice"),
    ),
    AcceleratorRow(
        name="Trainium2",
        vendor="AWS",
        year=2024,
        memory_gb=(96, TRN2),
        peak_bf16_tflops=(667, TRN2),
        hbm_gb_s=(2900, TRN2_MEMORY),
        in_node_gb_s=(640, TRN2_MEMORY),
        scale_out_gb_s=(25, TRN2_EFA),
        power_w=(500, TRN2_POWER),
        aliases=("trn2", "AWS Trainium2"),
    ),
    AcceleratorRow(
        name="Gaudi3",
        vendor="Intel",
        year=2024,
        memory_gb=(128, GAUDI3),
        peak_bf16_tflops=(1835, GAUDI3),
        hbm_gb_s=(3700, GAUDI3),
        in_node_gb_s=(525, GAUDI3_PORTS),
        scale_out_gb_s=(75, GAUDI3_PORTS),
        power_w=(900, GAUDI3),
        aliases=("Intel Gaudi 3", "HL-325L"),
    ),
)

SHAPES: dict[str, Source] = {
    "AWS": ("AWS EC2 accelerated instance pages; CPUs and memory as in SkyPilot catalog v8", "2026-11-15"),
    "GCP": ("Google Compute Engine and Cloud TPU pages; GPU shapes as in SkyPilot catalog v8", "2026-11-15"),
    "Azure": ("Microsoft Azure VM size pages, not re-checked", "2025"),
    "Lambda": ("Lambda pricing page; the network is approximate, none is published", "2026-09-20"),
    "CoreWeave": ("CoreWeave pricing page; the network is not re-checked", "2026-09-20"),
}

EAST_LIST: Source = (
    "SkyPilot catalog v8 (commit 00148f2), us-east-1 list price; date of reading",
    "2026-11-15",
)
EAST_SPOT: Source = (
    "SkyPilot catalog v8 (commit 00148f2), median over us-east-1 zones; date of reading",
    "2026-11-15",
)
OHIO_SPOT: Source = (
    "SkyPilot catalog v8 (commit 00148f2), median over us-east-2 zones; date of reading",
    "2026-11-15",
)
US_SPOT: Source = (
    "SkyPilot catalog v8 (commit 00148f2), median over zones in the US; date of reading",
    "2026-11-15",
)
AWS_LIST: Source = ("AWS EC2 list price, us-east-1, not re-checked", "2025")
AWS_SPOT: Source = ("Approximate: usual us-east-1 spot price, not re-checked", "2025")
AWS_RETIRED: Source = ("AWS EC2 list price, us-east-1, before the family retired, not re-checked", "2023")
AWS_RETIRED_SPOT: Source = ("Approximate: 30 % of list, the family has retired", "2023")
P5E_BLOCK: Source = ("AWS Capacity Block price, us-east-2; not sold on demand", "2024-12")
TRN2_BLOCK: Source = ("Approximate: AWS Capacity Block price; not sold on demand, not re-checked", "2025")
HYPERSCALERS: Source = ("Vendor list price as gathered by datareceipts, us-east-1 or eastus", "2026-11-09")

CENTRAL_LIST: Source = (
    "SkyPilot catalog v8 (commit 006059e), us-central1, VM plus accelerators; date of reading",
    "2026-11-15",
)
CENTRAL_SPOT: Source = (
    "SkyPilot catalog v8 (commit 006059e), us-central1 spot, VM plus accelerators; date of reading",
    "2026-11-15",
)
GCP_BILLING: Source = (
    "Google Cloud Billing catalog, us-central1, 8 x a3-highgpu-1g, as gathered by silybench",
    "2026-09-26",
)
GCP_BILLING_ULTRA: Source = ("Google Cloud Billing catalog, us-central1, as gathered by tanod", "2026-10-13")
GCP_LIST: Source = ("Google Cloud list price, us-central1, not re-checked", "2025")
GCP_SPOT: Source = ("Approximate: usual us-central1 spot price, not re-checked", "2025")

AZURE_LIST: Source = ("Azure list price, eastus, not re-checked", "2025")
AZURE_OLD: Source = ("Azure list price before the size retired, as in S. Luccioni's cloud data", "2023")
AZURE_SPOT: Source = ("Estimate: 40 % of list; no spot price was read", "2026-11-15")

LAMBDA_LIST: Source = ("Lambda pricing page as transcribed by api-evangelist; no spot sold", "2026-09-20")
LAMBDA_OLD: Source = ("SkyPilot catalog v8 (commit 0f40703), no spot sold; date of reading", "2026-11-15")
COREWEAVE_LIST: Source = ("CoreWeave pricing page as transcribed by api-evangelist, North America", "2026-09-20")
COREWEAVE_H200: Source = ("CoreWeave price as gathered by compute-screener", "2026-10-24")
COREWEAVE_SPOT: Source = ("Estimate: 40 % of list, as for H100 there; no spot price was read", "2026-10-24")

INSTANCES: tuple[InstanceRow, ...] = (
    InstanceRow("p2.8xlarge", "AWS", "K80", 8, 32, 488, 10, (7.20, AWS_RETIRED), (2.16, AWS_RETIRED_SPOT)),
    InstanceRow("p2.16xlarge", "AWS", "K80", 16, 64, 732, 25, (14.40, AWS_RETIRED), (4.32, AWS_RETIRED_SPOT)),
    InstanceRow("p3.2xlarge", "AWS", "V100", 1, 8, 61, 10, (3.06, EAST_LIST), (0.394, EAST_SPOT)),
    InstanceRow("p3.16xlarge", "AWS", "V100", 8, 64, 488, 25, (24.48, EAST_LIST), (2.78, EAST_SPOT)),
    InstanceRow("p3dn.24xlarge", "AWS", "V100-32", 8, 96, 768, 100, (31.212, EAST_LIST), (7.27, EAST_SPOT)),
    InstanceRow("g4dn.xlarge", "AWS", "T4", 1, 4, 16, 25, (0.526, AWS_LIST), (0.21, AWS_SPOT)),
    InstanceRow("g4dn.metal", "AWS", "T4", 8, 96, 384, 100, (7.824, EAST_LIST), (2.96, EAST_SPOT)),
    InstanceRow("g5.4xlarge", "AWS", "A10G", 1, 16, 64, 25, (1.624, EAST_LIST), (0.66, EAST_SPOT)),
    InstanceRow("g5.48xlarge", "AWS", "A10G", 8, 192, 768, 100, (16.288, AWS_LIST), (6.5, AWS_SPOT)),
    InstanceRow("p4d.24xlarge", "AWS", "A100-40", 8, 96, 1152, 400, (21.9576, HYPERSCALERS), (8.00, EAST_SPOT)),
    InstanceRow("p4de.24xlarge", "AWS", "A100-80", 8, 96, 1152, 400, (27.4471, HYPERSCALERS), (9.31, EAST_SPOT)),
    InstanceRow("g6.2xlarge", "AWS", "L4", 1, 8, 32, 10, (0.9776, EAST_LIST), (0.476, EAST_SPOT)),
    InstanceRow("g6.24xlarge", "AWS", "L4", 4, 96, 384, 50, (6.6752, EAST_LIST), (2.92, EAST_SPOT)),
    InstanceRow("g6e.2xlarge", "AWS", "L40S", 1, 8, 64, 20, (2.2421, EAST_LIST), (0.918, EAST_SPOT)),
    InstanceRow("g6e.48xlarge", "AWS", "L40S", 8, 192, 1536, 400, (30.1312, EAST_LIST), (10.37, EAST_SPOT)),
    InstanceRow("p5.48xlarge", "AWS", "H100", 8, 192, 2048, 3200, (55.04, HYPERSCALERS), (21.15, EAST_SPOT)),
    InstanceRow("p5e.48xlarge", "AWS", "H200", 8, 192, 2048, 3200, (43.26, P5E_BLOCK), (19.54, US_SPOT)),
    InstanceRow("p5en.48xlarge", "AWS", "H200", 8, 192, 2048, 3200, (63.296, EAST_LIST), (17.21, EAST_SPOT)),
    InstanceRow("p6-b200.48xlarge", "AWS", "B200", 8, 192, 2048, 3200, (113.9328, EAST_LIST), (21.73, OHIO_SPOT)),
    InstanceRow("trn2.48xlarge", "AWS", "Trainium2", 16, 192, 2048, 3200, (35.76, TRN2_BLOCK), (23.06, OHIO_SPOT)),
    InstanceRow("a2-highgpu-1g", "GCP", "A100-40", 1, 12, 85, 24, (3.6734, CENTRAL_LIST), (1.8039, CENTRAL_SPOT)),
    InstanceRow("a2-highgpu-8g", "GCP", "A100-40", 8, 96, 680, 100, (29.3871, CENTRAL_LIST), (14.4308, CENTRAL_SPOT)),
    InstanceRow("a2-ultragpu-8g", "GCP", "A100-80", 8, 96, 1360, 100, (40.55, GCP_LIST), (20.2, GCP_SPOT)),
    InstanceRow("g2-standard-4", "GCP", "L4", 1, 4, 16, 10, (0.7068, GCP_LIST), (0.28, GCP_SPOT)),
    InstanceRow("g2-standard-96", "GCP", "L4", 8, 96, 384, 100, (8.0, GCP_LIST), (3.2, GCP_SPOT)),
    InstanceRow("a3-highgpu-8g", "GCP", "H100", 8, 208, 1872, 1000, (87.8328, GCP_BILLING), (52.568, GCP_BILLING)),
    InstanceRow("a3-megagpu-8g", "GCP", "H100", 8, 208, 1872, 1800, (92.2143, CENTRAL_LIST), (28.1701, CENTRAL_SPOT)),
    InstanceRow(
        "a3-ultragpu-8g",
        "GCP",
        "H200",
        8,
        224,
        2952,
        3600,
        (83.492, GCP_BILLING_ULTRA),
        (50.0856, GCP_BILLING_ULTRA),
    ),
    InstanceRow("a4-highgpu-8g", "GCP", "B200", 8, 224, 3968, 3600, (90.216, CENTRAL_LIST), (32.6064, CENTRAL_SPOT)),
    InstanceRow("v3-8", "GCP", "TPU-v3", 4, 96, 340, 100, (8.0, GCP_LIST), (2.4, GCP_SPOT)),
    InstanceRow("ct4p-hightpu-4t", "GCP", "TPU-v4", 4, 240, 407, 100, (12.88, GCP_LIST), (5.6, GCP_SPOT)),
    InstanceRow("ct5lp-hightpu-4t", "GCP", "TPU-v5e", 4, 112, 192, 100, (4.8, GCP_LIST), (1.9, GCP_SPOT)),
    InstanceRow("ct5p-hightpu-4t", "GCP", "TPU-v5p", 4, 208, 448, 200, (16.8, CENTRAL_LIST), (3.3428, CENTRAL_SPOT)),
    InstanceRow("ct6e-standard-4t", "GCP", "TPU-v6e", 4, 180, 720, 400, (10.8, CENTRAL_LIST), (2.1768, CENTRAL_SPOT)),
    InstanceRow("Standard_NC6s_v2", "Azure", "P100", 1, 6, 112, 6, (2.07, AZURE_OLD), (0.828, AZURE_SPOT)),
    InstanceRow(
        "Standard_NC24ads_A100_v4",
        "Azure",
        "A100-80",
        1,
        24,
        220,
        20,
        (3.673, HYPERSCALERS),
        (1.469, AZURE_SPOT),
    ),
    InstanceRow(
        "Standard_NC96ads_A100_v4",
        "Azure",
        "A100-80",
        4,
        96,
        880,
        80,
        (19.108, HYPERSCALERS),
        (7.643, AZURE_SPOT),
    ),
    InstanceRow(
        "Standard_ND96asr_A100_v4",
        "Azure",
        "A100-40",
        8,
        96,
        900,
        1600,
        (27.197, HYPERSCALERS),
        (10.879, AZURE_SPOT),
    ),
    InstanceRow(
        "Standard_ND96isr_H100_v5",
        "Azure",
        "H100",
        8,
        96,
        1900,
        3200,
        (98.32, HYPERSCALERS),
        (39.328, AZURE_SPOT),
    ),
    InstanceRow(
        "Standard_ND96isr_MI300X_v5",
        "Azure",
        "MI300X",
        8,
        96,
        1850,
        3200,
        (48.0, AZURE_LIST),
        (19.2, AZURE_SPOT),
    ),
    InstanceRow("gpu_8x_v100", "Lambda", "V100", 8, 92, 448, 10, (6.32, LAMBDA_OLD), None),
    InstanceRow("gpu_8x_a100_80gb_sxm4", "Lambda", "A100-80", 8, 240, 1800, 100, (22.32, LAMBDA_LIST), None),
    InstanceRow("gpu_8x_h100_sxm5", "Lambda", "H100", 8, 208, 1800, 100, (31.92, LAMBDA_LIST), None),
    InstanceRow("gpu_8x_b200_sxm6", "Lambda", "B200", 8, 208, 2900, 100, (53.52, LAMBDA_LIST), None),
    InstanceRow(
        "gd-8xh100ib-i128",
        "CoreWeave",
        "H100",
        8,
        128,
        2048,
        3200,
        (49.24, COREWEAVE_LIST),
        (19.71, COREWEAVE_LIST),
    ),
    InstanceRow(
        "gd-8xh200ib-i128",
        "CoreWeave",
        "H200",
        8,
        128,
        2048,
        3200,
        (50.44, COREWEAVE_H200),
        (20.18, COREWEAVE_SPOT),
    ),
    InstanceRow("b200-8x", "CoreWeave", "B200", 8, 128, 2048, 3200, (68.8, COREWEAVE_LIST), (34.11, COREWEAVE_LIST)),
    InstanceRow("gb200-4x", "CoreWeave", "GB200", 4, 144, 960, 1600, (42.0, COREWEAVE_LIST), None),
)
