"""Accelerators of other vendors: AMD, Google, AWS and Intel."""

from __future__ import annotations

from phalanx.cluster.hardware.rows import AcceleratorRow, Source

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

ACCELERATORS: tuple[AcceleratorRow, ...] = (
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
